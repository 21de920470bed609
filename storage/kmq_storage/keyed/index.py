"""The index of keyed queues: where the messages of each queue are, in runs and behind them.

The index of a message is the number of its queue's messages with lower offsets, back to the queue's
last end. So it follows from the records alone. Nothing is assigned, and every process finds the
same index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.errors import DataLossError, NotFoundError, OffsetOutOfRangeError
from kmq_storage.format.binary_columns import binary_column
from kmq_storage.format.plain_columns import flags_of, number_column, numbers_of
from kmq_storage.format.queue_table import grouped
from kmq_storage.format.records import TELLING, keys_of, tombstones_of
from kmq_storage.keyed.parts import Parts
from kmq_storage.keyed.topic import PARTITION
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.run_index import RunIndex, counts_in
from kmq_storage.log.reading.scan import Slice, scan
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Place

#: Queues and offsets of records.
_Places: TypeAlias = "tuple[pa.Array, Numbers]"

_SCAN_ROWS = 65_536
#: The most rows to sort at a time, and bytes of their names, as a column has less than 2 GiB.
_SORTED_ROWS, _SORTED_BYTES = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class RunRows:
    """Rows of a run with messages of one queue; `index` is that of the first."""

    run: RunIndex
    first: int
    behind: int
    index: int


@dataclass(frozen=True, slots=True)
class _Life:
    """Where a queue last began."""

    #: The first run with messages of this life, and the index of its first message.
    run: int = 0
    index: int = 0
    #: The offset of the queue's end before this life, if that is in no run yet.
    end: int = -1
    #: An offset before all messages of this life, and behind those of earlier lives.
    began: int = 0


class QueueIndex:
    """The index of a topic's queues at the last state it followed; for one thread at a time."""

    def __init__(self, log: CommitLog, reader: ChunkReader) -> None:
        self._log = log
        self._reader = reader
        #: The runs from the start of the topic up to the first records that are in no run.
        self.runs: list[RunIndex] = []
        #: The messages behind these runs.
        self.loose = Parts()
        #: The ends of queues behind these runs.
        self.ends = Parts()
        #: The numbers of runs with queues that begin anew, the newest first.
        self._anew: list[int] = []
        #: The first offset that was not trimmed.
        self._first = 0
        self._topic = ""
        self._layout_lsn = -1

    @property
    def end(self) -> int:
        """The offset up to which the index goes."""
        return self.loose.end

    def follow(self, topic: Topic) -> None:
        """Bring the index up to a topic's current state."""
        part = topic.partition(PARTITION)
        if part.layout_lsn != self._layout_lsn:
            self._follow_runs(topic)
            self._first, self._topic, self._layout_lsn = part.first, topic.name, part.layout_lsn
        if self.end < part.end:
            for found in _sorted_at_once(self._behind(topic, part.end)):
                self.loose.add(*found.messages, found.end)
                self.ends.add(*found.ends, found.end)

    def _follow_runs(self, topic: Topic) -> None:
        places = run_places(topic)
        known = {run.file: run for run in self.runs}
        self.runs = [
            known.get(place.location.file) or RunIndex(self._reader, place, topic.name)
            for place in places
        ]
        self._reader.unmap_others({run.file for run in self.runs})
        self._anew = [n for n, run in enumerate(self.runs) if run.has_beginnings][::-1]
        behind = places[-1].end_offset if places else topic.partition(PARTITION).first
        self.loose.drop_before(behind)
        self.ends.drop_before(behind)

    def _behind(self, topic: Topic, end: int) -> Iterator[Slice]:
        """The records behind the index, up to `end`."""
        return readable(self._log, self._reader, topic, (self.end, end))

    def first(self, name: bytes) -> int:
        """The index of a queue's first message; earlier ones were trimmed."""
        return self._life(name, self.end).index

    def began(self, name: bytes) -> int:
        """An offset before all messages of a queue, and behind those that it had when it ended."""
        return self._life(name, self.end).began

    def all_began(self, names: pa.Array) -> Numbers:
        """As `began`, for many queues, whose names must ascend."""
        found = np.zeros(len(names), np.int64)
        for run in (self.runs[number] for number in reversed(self._anew)):
            anew = run.beginnings_of(names)
            found = np.where(anew < 0, found, run.place.base_offset)
        ends = self.ends.lasts(names, self.end)
        return np.where(ends < 0, found, ends + 1)

    def span(self, name: bytes) -> tuple[int, int]:
        """The index of a queue's first message, and the index behind its last."""
        life = self._life(name, self.end)
        return life.index, self._count_of(name, life, self.end)

    def index_at(self, name: bytes, offset: int) -> int:
        """The index of a queue's message at an offset.

        NotFoundError when the message was dropped because its queue ended since,
        OffsetOutOfRangeError when it was trimmed.
        """
        self._check(offset, binary_column([name]), np.array([offset]))
        return self._count(name, offset)

    def _count(self, name: bytes, before: int) -> int:
        """The index that a queue's message at offset `before` has."""
        return self._count_of(name, self._life(name, before), before)

    def index_from(self, name: bytes, offset: int) -> int:
        """The index of a queue's first current message at or after an offset."""
        return self._count_of(name, self._life(name, self.end), offset)

    def _count_of(self, name: bytes, life: _Life, before: int) -> int:
        in_runs = sum(run.count(name, before) for run in self.runs[life.run :])
        loose = self.loose.count(name, before) - self._dead(name, life)
        return life.index + in_runs + max(loose, 0)

    def _life(self, name: bytes, before: int) -> _Life:
        """The life of a queue at offset `before`."""
        end = self.ends.last(name, before)
        if end >= 0:
            return _Life(len(self.runs), 0, end, end + 1)
        for number in self._anew:
            run = self.runs[number]
            index = run.beginning(name) if run.place.base_offset <= before else None
            if index is not None:
                return _Life(number, index, began=run.place.base_offset)
        return _Life()

    def _dead(self, name: bytes, life: _Life) -> int:
        """The number of messages in no run yet that belong to an earlier life."""
        return self.loose.count(name, life.end) if life.end >= 0 else 0

    def _check(self, offset: int, names: pa.Array, offsets: Numbers) -> None:
        """Raise the errors of `index_at` for messages of put ones that were trimmed or dropped.

        `offset` is that of the first put one; the names must ascend.
        """
        if offset < self._first:
            raise OffsetOutOfRangeError(
                f"the messages from offset {offset} of {self._topic} on were stored, and trimmed "
                "since: their indexes are not known any more, the topic has "
                f"{self._first} to {self.end} (next)",
                topic=self._topic,
                partition=PARTITION,
                offset=offset,
                start=self._first,
                end=self.end,
            )
        for run in self.runs:
            here = np.flatnonzero(
                (run.place.base_offset <= offsets) & (offsets < run.place.end_offset)
            )
            if run.has_gaps and len(here):
                lacks = run.lacks(names.take(number_column(here)), offsets[here])
                for at in here[lacks][:1].tolist():
                    name = names[at].as_py()
                    raise NotFoundError(
                        f"the message was stored, and its queue {name!r} in {self._topic} ended "
                        "since: it is not kept any more, and its index is not known",
                        topic=self._topic,
                        queue=name,
                        offset=int(offsets[at]),
                    )

    def places(self, name: bytes, first: int, most: int) -> tuple[list[RunRows], Numbers]:
        """The places of a queue's messages from an index on: rows of runs, then offsets.

        The index must not be below the queue's first. Reading the messages in runs has begun.
        """
        life = self._life(name, self.end)
        found, index, end = [], life.index, first + most
        for run in self.runs[life.run + 1 :]:
            run.begin_rows_of(name)  # beside what is read first: a disk takes as long for one
        for run in self.runs[life.run :]:
            low, high = run.rows_of(name)
            start, behind = max(first - index, 0), min(end - index, high - low)
            if start < behind:
                run.begin_values(low + start, low + behind)  # beside the next look-up
                found.append(RunRows(run, low + start, low + behind, index + start))
            index += high - low
            if index >= end:
                return found, np.zeros(0, np.int64)
        dead = self._dead(name, life)
        return found, self.loose.offsets(
            name, dead + max(first - index, 0), end - max(index, first)
        )

    def indexes(self, keys: pa.Array, first: int) -> Numbers:
        """The index of each message of consecutive records from offset `first` on."""
        table, order = grouped(keys)
        offsets = first + order[table.starts[:-1]]
        self._check(first, table.names, offsets)
        before = self._counts(table.names, first)
        indexes = np.empty(len(keys), np.int64)
        counts = np.diff(table.starts)
        indexes[order] = np.arange(len(keys)) + np.repeat(before - table.starts[:-1], counts)
        return indexes

    def names(self) -> pa.ChunkedArray:
        """The names of all queues, sorted by their bytes, in pieces of up to some GiB."""
        names = [*self.loose.names(), *(each for run in self.runs for each in run.names())]
        pieces = _ascending(pa.chunked_array(names, pa.binary()))
        if self._anew or len(self.ends):
            pieces = map(self._kept, pieces)
        return pa.chunked_array(pieces, pa.binary())

    def _kept(self, names: pa.Array) -> pa.Array:
        """The queues that have messages; the names must ascend."""
        return names.filter(number_column(self._counts(names, self.end) > self._firsts(names)))

    def _firsts(self, names: pa.Array) -> Numbers:
        """The index of each queue's first message; the names must ascend."""
        found = np.zeros(len(names), np.int64)
        for number in reversed(self._anew):
            anew = self.runs[number].beginnings_of(names)
            found = np.where(anew < 0, found, anew)
        if len(self.ends):
            found[self.ends.lasts(names, self.end) >= 0] = 0
        return found

    def _counts(self, names: pa.Array, before: int) -> Numbers:
        """The index that each queue's message at offset `before` has; the names must ascend."""
        found = counts_in(self.runs, names, before)
        loose = self.loose.counts(names, before)
        if len(self.ends):
            ends = self.ends.lasts(names, before)
            found[ends >= 0] = 0
            loose -= self.loose.counts(names, ends)
        return found + loose


def _ascending(names: pa.ChunkedArray) -> Iterator[pa.Array]:
    """The distinct names, sorted by their bytes, in pieces that fit into a column."""
    once = pc.unique(names.cast(pa.large_binary()))
    order = pc.sort_indices(once)
    behind = np.cumsum(numbers_of(pc.binary_length(once))[numbers_of(order)])
    borders = np.flatnonzero(np.diff(behind // _SORTED_BYTES)) + 1
    for low, high in pairwise([0, *borders.tolist(), len(once)]):
        yield once.take(order.slice(low, high - low)).cast(pa.binary())


def run_places(topic: Topic) -> list[Place]:
    """The runs from the start of a topic up to the first records that are in no run."""
    part = topic.partition(PARTITION)
    rows = topic.index(PARTITION).rows(part.start, part.end)
    return [row.place((topic.id, PARTITION)) for row in takewhile(lambda r: r.in_run, rows)]


def readable(
    log: CommitLog, reader: ChunkReader, topic: Topic, span: tuple[int, int]
) -> Iterator[Slice]:
    """Keys and values of the records in [start, end); gaps of a repair are skipped."""
    layout, (at, end) = topic.layout(TELLING), span
    while at < end:
        parts = scan(
            *(log, reader, topic, PARTITION, (at, end)), batch_rows=_SCAN_ROWS, layout=layout
        )
        try:
            for part in parts:
                yield part
                at = part.end
            return
        except DataLossError as error:
            at = error.context["end"]


@dataclass(frozen=True, slots=True)
class _Arrived:
    """The queues and offsets of messages, and of ends of queues, in a range of offsets."""

    messages: _Places
    ends: _Places
    #: The offset behind the last one.
    end: int


def _sorted_at_once(slices: Iterator[Slice]) -> Iterator[_Arrived]:
    """The contents of slices, collected into portions that are sorted at once."""
    found: list[_Places] = []
    ended: list[_Places] = []
    rows = size = end = 0
    for part in slices:
        found.append(messages(part))
        ended.append(_ends(part))
        size += found[-1][0].nbytes + ended[-1][0].nbytes
        rows, end = rows + part.rows, part.end
        if rows >= _SORTED_ROWS or size >= _SORTED_BYTES:
            yield _Arrived(_joined(found), _joined(ended), end)
            found, ended, rows, size = [], [], 0, 0
    if found:
        yield _Arrived(_joined(found), _joined(ended), end)


def _joined(places: list[_Places]) -> _Places:
    keys, offsets = zip(*places, strict=True)
    return pa.concat_arrays(keys), np.concatenate(offsets)


def _ends(part: Slice) -> _Places:
    """The queues that end in a slice, and the offsets of their ends."""
    keys, rows = keys_of(part.batch), tombstones_of(part.batch)
    if keys is None:
        return pa.nulls(0, pa.binary()), part.offsets()[:0]
    return keys.take(number_column(rows)), part.offsets()[rows]


def messages(part: Slice) -> _Places:
    """The queues and offsets of the messages in a slice."""
    keys, offsets, wanted = keys_of(part.batch), part.offsets(), is_message(part.batch)
    if keys is None:
        return pa.nulls(0, pa.binary()), offsets[:0]
    if wanted.all():
        return keys, offsets
    return keys.filter(number_column(wanted)), offsets[wanted]


def is_message(batch: pa.RecordBatch) -> Mask:
    """A mask of the messages in a batch, which are records with key and value."""
    keys, values = keys_of(batch), batch.column("value")
    if keys is None:
        return np.zeros(batch.num_rows, np.bool_)
    if not (keys.null_count or values.null_count):
        return np.ones(batch.num_rows, np.bool_)
    return flags_of(pc.and_(keys.is_valid(), values.is_valid()))
