"""Where the messages of each queue stand: in runs, and behind them by offset.

An index in a queue is the number of the queue's messages with lower offsets, so it follows from
the records alone: nothing is assigned, and every process finds the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage.errors import DataLossError
from kmq_storage.format.queue_table import grouped
from kmq_storage.format.records import keys_of
from kmq_storage.keyed.parts import Parts
from kmq_storage.keyed.topic import PARTITION
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.run_index import RunIndex
from kmq_storage.log.scan import Slice, scan
from kmq_storage.log.topic_state import Topic
from kmq_storage.model import Place

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[np.int64]

#: What tells the queue of a record, and whether it is a message.
_INDEXED = frozenset({"key", "value"})
_SCAN_ROWS = 65_536
#: Rows that are sorted at a time.
_SORTED_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class RunRows:
    """Rows of a run with messages of one queue, from an index on."""

    run: RunIndex
    first: int
    behind: int
    index: int


class QueueIndex:
    """What the queues of a topic have, as of the last state it was shown. One thread at a time."""

    def __init__(self, log: CommitLog, reader: ChunkReader) -> None:
        self._log = log
        self._reader = reader
        #: The runs from the start of the topic up to the first records that are in none.
        self.runs: list[RunIndex] = []
        #: What comes behind them.
        self.loose = Parts()
        self._layout_lsn = -1

    @property
    def end(self) -> int:
        """The offset up to which everything is known."""
        return self.loose.end

    def follow(self, topic: Topic) -> None:
        """Know what is visible now."""
        part = topic.partition(PARTITION)
        if part.layout_lsn != self._layout_lsn:
            self._follow_runs(topic)
            self._layout_lsn = part.layout_lsn
        if self.end < part.end:
            for keys, offsets, end in _sorted_at_once(self._behind(topic, part.end)):
                self.loose.add(keys, offsets, end)

    def _follow_runs(self, topic: Topic) -> None:
        places = run_places(topic)
        known = {run.file: run for run in self.runs}
        self.runs = [known.get(place.location.file) or self._opened(place) for place in places]
        if places:
            self.loose.drop_before(places[-1].end_offset)

    def _opened(self, place: Place) -> RunIndex:
        return RunIndex(self._reader, place)

    def _behind(self, topic: Topic, end: int) -> Iterator[Slice]:
        """What is not known yet."""
        return readable(self._log, self._reader, topic, (self.end, end))

    def size(self, name: bytes) -> int:
        """How many messages a queue has."""
        return self.count(name, self.end)

    def count(self, name: bytes, before: int) -> int:
        """How many messages of a queue come before an offset: the index of the one there."""
        in_runs = sum(run.count(name, before) for run in self.runs)
        return in_runs + self.loose.count(name, before)

    def places(self, name: bytes, first: int, most: int) -> tuple[list[RunRows], _Numbers]:
        """Where the messages of a queue from an index on stand: rows of runs, then offsets."""
        found, index, end = [], 0, first + most
        for run in self.runs:
            low, high = run.rows_of(name)
            start, behind = max(first - index, 0), min(end - index, high - low)
            if start < behind:
                found.append(RunRows(run, low + start, low + behind, index + start))
            index += high - low
            if index >= end:
                return found, np.zeros(0, np.int64)
        return found, self.loose.offsets(name, max(first - index, 0), end - max(index, first))

    def indexes(self, keys: pa.Array, first: int) -> _Numbers:
        """The index of each of many messages that stand one behind the other from an offset on."""
        table, order = grouped(keys)
        before = self.loose.counts(table.names, first)
        for run in self.runs:
            before += run.counts(table.names, first)
        indexes = np.empty(len(keys), np.int64)
        counts = np.diff(table.starts)
        indexes[order] = np.arange(len(keys)) + np.repeat(before - table.starts[:-1], counts)
        return indexes

    def names(self) -> pa.Array:
        """The names of all queues, in the order of their bytes."""
        names = [*self.loose.names(), *(each for run in self.runs for each in run.names())]
        found = pc.unique(pa.chunked_array(names, pa.binary()))
        return found.take(pc.sort_indices(found))


def run_places(topic: Topic) -> list[Place]:
    """The runs from the start of a topic up to the first records that are in none."""
    part = topic.partition(PARTITION)
    rows = topic.index(PARTITION).rows(part.start, part.end)
    return [row.place((topic.id, PARTITION)) for row in takewhile(lambda r: r.in_run, rows)]


def readable(
    log: CommitLog, reader: ChunkReader, topic: Topic, span: tuple[int, int]
) -> Iterator[Slice]:
    """Keys and values in [start, end); what was cut out by a repair is passed over."""
    layout, (at, end) = topic.layout(_INDEXED), span
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


def _sorted_at_once(slices: Iterator[Slice]) -> Iterator[tuple[pa.Array, _Numbers, int]]:
    """The queues and offsets of messages, as many at a time as are worth sorting."""
    keys: list[pa.Array] = []
    offsets: list[_Numbers] = []
    rows = end = 0
    for part in slices:
        found, places = messages(part)
        keys.append(found)
        offsets.append(places)
        rows, end = rows + len(found), part.end
        if rows >= _SORTED_ROWS:
            yield pa.concat_arrays(keys), np.concatenate(offsets), end
            keys, offsets, rows = [], [], 0
    if keys:
        yield pa.concat_arrays(keys), np.concatenate(offsets), end


def messages(part: Slice) -> tuple[pa.Array, _Numbers]:
    """The queues and offsets of the records that are messages."""
    keys, offsets, wanted = keys_of(part.batch), part.offsets(), is_message(part.batch)
    if keys is None:
        return pa.array([], pa.binary()), offsets[:0]
    if wanted.all():
        return keys, offsets
    return keys.filter(pa.array(wanted)), offsets[wanted]


def is_message(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which records are messages: those with key and value."""
    keys, values = keys_of(batch), batch.column("value")
    if keys is None:
        return np.zeros(batch.num_rows, np.bool_)
    if not (keys.null_count or values.null_count):
        return np.ones(batch.num_rows, np.bool_)
    return np.asarray(pc.and_(keys.is_valid(), values.is_valid()), np.bool_)
