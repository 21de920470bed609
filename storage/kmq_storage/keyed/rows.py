"""Reading a range of offsets with queues and indexes, as a Spark task does.

Runs are read in the order of their queues. Of a run without any wanted queue, only the directory is
read. To find indexes, the earlier messages are counted, but only for queues that occur in the
range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.errors import CorruptionError
from kmq_storage.format.plain_columns import flags_of, number_column, numbers_of, scalar
from kmq_storage.format.queue_table import QueueTable
from kmq_storage.format.records import TELLING, keys_of, offsets_of
from kmq_storage.format.row_order import sorting
from kmq_storage.keyed.index import is_message, messages, readable, run_places
from kmq_storage.keyed.topic import PARTITION
from kmq_storage.keyed.wanted import WantedQueues
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import missing_file, moved_file
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.run_index import RunIndex, counts_in, named_queue
from kmq_storage.log.reading.scan import moved, scan
from kmq_storage.log.state.topic_state import Topic

_SCAN_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Records in the stored columns; queue and index are null for a record that is no message."""

    batch: pa.RecordBatch
    offsets: Numbers
    queues: pa.Array
    indexes: pa.Array

    def only(self, rows: Mask) -> KeyedRows:
        """The records that a mask selects."""
        if rows.all():
            return self
        mask = number_column(rows)
        columns = (each.filter(mask) for each in (self.batch, self.queues, self.indexes))
        batch, queues, indexes = columns
        return KeyedRows(batch, self.offsets[rows], queues, indexes)


@dataclass(frozen=True, slots=True)
class _Done:
    """How far a run was read when its file was collected: the last record, and the run's end."""

    queue: bytes | None
    offset: int
    end: int

    def is_before(self, rows: KeyedRows) -> Mask:
        """A mask of the records that come behind the last one, in the order of runs."""
        unread = rows.offsets > self.offset
        named = flags_of(rows.queues.is_valid())
        if self.queue is None:
            return named | unread
        same = flags_of(pc.equal(rows.queues, scalar(self.queue)))
        above = flags_of(pc.greater(rows.queues, scalar(self.queue)))
        return above | (same & unread)


class KeyedReader:
    """Reads ranges of offsets of one keyed topic in its current state."""

    def __init__(
        self,
        log: CommitLog,
        topic_id: bytes,
        columns: Iterable[str],
        wanted: WantedQueues | None,
        trimmed: Callable[[Topic, int, int], object],
    ) -> None:
        """A reader of these columns, which may include `index`, for all or only `wanted` queues.

        `trimmed` is called with a range [start, end) of offsets that were trimmed before they were
        read; it may raise.
        """
        self._log = log
        self._reader = ChunkReader(log.files)
        self._topic_id = topic_id
        self._columns = frozenset(columns)
        self._wanted = wanted
        self._trimmed = trimmed

    def between(self, start: int, end: int) -> Iterator[KeyedRows]:
        """The records with offsets in [start, end); those of runs are sorted by queue.

        Files that moved are looked up again. Trimmed offsets are reported to `trimmed` and left
        out. NotFoundError when the topic was deleted.
        """
        error = CorruptionError("the topic is not there", missing=True, file="")
        topic = self._log.refresh().topic_by_id(self._topic_id)
        yield from self._between(topic or moved(self._log, self._topic_id, error), start, end)

    def _between(
        self, topic: Topic, start: int, end: int, done: _Done | None = None, missing: str = ""
    ) -> Iterator[KeyedRows]:
        runs: list[RunIndex] = []
        low = min(topic.partition(PARTITION).first, end)
        if start < low:
            self._trimmed(topic, start, low)
            start = low
        try:
            for place in run_places(topic):
                if place.base_offset >= end:
                    break
                if "index" in self._columns or place.end_offset > start:
                    runs.append(RunIndex(self._reader, place, topic.name))
                if place.end_offset > start:
                    for rows in self._of_run(topic, runs, (start, end), done):
                        yield rows
                        done = _done(rows, min(place.end_offset, end))
                    start, done = min(place.end_offset, end), None
        except CorruptionError as error:
            topic, file = moved(self._log, self._topic_id, error), moved_file(error) or ""
            if file == missing:
                raise
            if done is not None:
                yield from self._between(topic, start, done.end, done, file)
                start = done.end
            yield from self._between(topic, start, end, None, file)
            return
        if start < end:
            for rows in self._behind_runs(topic, runs, start, end):
                yield rows if done is None else rows.only(done.is_before(rows))

    def _of_run(
        self, topic: Topic, runs: Sequence[RunIndex], span: tuple[int, int], done: _Done | None
    ) -> Iterator[KeyedRows]:
        for rows in self._rows_of_run(topic, runs[:-1], runs[-1]):
            left = (rows.offsets >= span[0]) & (rows.offsets < span[1])
            if done is not None:
                left &= done.is_before(rows)
            if left.any():
                yield rows.only(left)

    def _rows_of_run(
        self, topic: Topic, before: Sequence[RunIndex], run: RunIndex
    ) -> Iterator[KeyedRows]:
        layout = topic.layout(self._columns | {"key"})
        if self._wanted is None:
            for batch in run.records(0, run.first_row, layout):
                yield _without_queue(batch)
            ranges = [(run.first_row, run.place.rows)]
        else:
            ranges = self._wanted.rows(run)
        tables = (table for rows in ranges for table in run.tables(*rows))
        for table in filter(len, tables):
            indexes, first = self._indexes(table, before, run), int(table.starts[0])
            at = first
            try:
                for batch in run.records(first, table.rows_end, layout):
                    part = number_column(indexes[at - first : at - first + batch.num_rows])
                    yield KeyedRows(batch, _offsets(batch), batch.column("key"), part)
                    at += batch.num_rows
            except CorruptionError as error:
                lost = at, min(run.batch_end(at), table.rows_end)
                raise self._with_messages(error, topic, run, lost) from error

    def _with_messages(
        self, error: CorruptionError, topic: Topic, run: RunIndex, rows: tuple[int, int]
    ) -> CorruptionError:
        """The error with the messages in damaged rows; that of a missing file stays as it is."""
        if missing_file(error) is not None:
            return error
        from kmq_storage.log.reading.damaged_runs import messages_in_words  # only when needed

        named = " to ".join(named_queue(run.queue_of(row)) for row in (rows[0], rows[1] - 1))
        with suppress(CorruptionError):
            places = takewhile(
                lambda each: each.base_offset < run.place.end_offset, run_places(topic)
            )
            runs = [RunIndex(self._reader, place, topic.name) for place in places]
            named = messages_in_words(runs, *rows)
        return CorruptionError(
            f"messages of {topic.name}, from {named}, can't be read: {error.message}",
            **{**error.context, "topic": topic.name, "partition": PARTITION},
        )

    def _indexes(self, table: QueueTable, before: Sequence[RunIndex], run: RunIndex) -> Numbers:
        """The index of each row of some queues in a run."""
        counts = counts_in(before, table.names, run.place.base_offset)
        if run.has_beginnings:
            anew = run.beginnings_of(table.names)
            counts = np.where(anew < 0, counts, anew)
        firsts = table.starts[:-1] - table.starts[0]
        bases = np.repeat(counts - firsts, np.diff(table.starts))
        indexes: Numbers = np.arange(table.rows) + bases
        return indexes

    def _behind_runs(
        self, topic: Topic, runs: Sequence[RunIndex], start: int, end: int
    ) -> Iterator[KeyedRows]:
        counted = _Counted(pa.nulls(0, pa.binary()))
        if "index" in self._columns:
            counted = _Counted(self._names(topic, start, end))
            counted.counts = counts_in(runs, counted.names, start)
            since = runs[-1].place.end_offset if runs else topic.partition(PARTITION).first
            for part in readable(self._log, self._reader, topic, (since, start)):
                counted.take(_keys(part.batch), _ended(part.batch))
        columns = self._columns | TELLING
        span = (start, end)
        for part in scan(
            *(self._log, self._reader, topic, PARTITION, span),
            batch_rows=_SCAN_ROWS,
            layout=topic.layout(columns),
        ):
            keys, message = _keys(part.batch), is_message(part.batch)
            wanted = message if self._wanted is None else message & self._wanted.among(keys)
            indexes = np.zeros(part.rows, np.int64)
            if "index" in self._columns:
                indexes = counted.take(keys, _ended(part.batch))
            queues = pc.if_else(number_column(message), keys, pa.nulls(1, pa.binary())[0])
            rows = KeyedRows(part.batch, part.offsets(), queues, number_column(indexes, message))
            yield rows if self._wanted is None else rows.only(wanted)

    def _names(self, topic: Topic, start: int, end: int) -> pa.Array:
        """The wanted queues in a range of offsets behind the runs, sorted by name."""
        parts = readable(self._log, self._reader, topic, (start, end))
        found = [pc.unique(messages(part)[0]) for part in parts]
        names = pc.unique(pa.concat_arrays([pa.nulls(0, pa.binary()), *found]))
        if self._wanted is not None:
            names = names.filter(number_column(self._wanted.among(names)))
        return names.take(pc.sort_indices(names))


class _Counted:
    """Counts the messages of some queues."""

    def __init__(self, names: pa.Array) -> None:
        self.names = names
        self.counts = np.zeros(len(names), np.int64)

    def take(self, keys: pa.Array, ended: Mask) -> Numbers:
        """Count more records; returns the index of each, which is undefined for non-messages."""
        count = len(self.names)
        places = pc.index_in(keys, value_set=self.names).fill_null(scalar(count, pa.int32()))
        places = numbers_of(places).astype(np.uint32)
        order = sorting(places.astype(np.uint64))
        rows = np.bincount(places, minlength=count + 1)
        behind = np.cumsum(rows)
        firsts = (behind - rows)[rows > 0]
        # Within each queue, count messages from its first record here or from its last end on.
        ends = ended[order]
        before: Numbers = np.cumsum(~ends) - ~ends
        since = np.zeros(len(keys), np.int64)
        since[firsts] = firsts
        since[ends] = np.flatnonzero(ends)
        since = np.maximum.accumulate(since)
        known = np.append(self.counts, 0)[places[order]]
        found = before - before[since] + np.where(ends[since], 0, known)
        indexes = np.empty(len(keys), np.int64)
        indexes[order] = found
        last = behind[:-1][rows[:-1] > 0] - 1
        self.counts[rows[:-1] > 0] = found[last] + ~ends[last]
        return indexes


def _keys(batch: pa.RecordBatch) -> pa.Array:
    keys = keys_of(batch)
    return pa.nulls(batch.num_rows, pa.binary()) if keys is None else keys


def _ended(batch: pa.RecordBatch) -> Mask:
    """A mask of the records without a value; if they have a key, they end its queue."""
    return flags_of(batch.column("value").is_null())


def _without_queue(batch: pa.RecordBatch) -> KeyedRows:
    nothing = pa.nulls(batch.num_rows, pa.binary()), pa.nulls(batch.num_rows, pa.int64())
    return KeyedRows(batch, _offsets(batch), *nothing)


def _offsets(batch: pa.RecordBatch) -> Numbers:
    offsets = offsets_of(batch)
    assert offsets is not None, "runs have a column of offsets"
    return np.asarray(numbers_of(offsets), np.int64)


def _done(rows: KeyedRows, end: int) -> _Done:
    return _Done(rows.queues[-1].as_py(), int(rows.offsets[-1]), end)
