"""Messages of keyed queues that are in no run yet: sealing has not sorted them by queue."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.format.gathered import RowRanges, gathered, ranges
from kmq_storage.format.plain_columns import number_column
from kmq_storage.keyed.parts import Part, Parts
from kmq_storage.keyed.topic import PARTITION
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import Slice
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Chunk, Location

_READ = frozenset({"value"})
#: How many record batches are cached, as the messages of one queue may be in many.
_BATCHES_KEPT = 64


class LooseMessages:
    """Reads messages at given offsets; for one thread at a time."""

    def __init__(self, reader: ChunkReader) -> None:
        self._reader = reader
        self._batches: OrderedDict[tuple[Location, int], pa.RecordBatch] = OrderedDict()

    def forget(self) -> None:
        """Drop the cached batches, as other records have their places now."""
        self._batches.clear()

    def read(self, topic: Topic, offsets: Numbers) -> Iterator[pa.Array]:
        """The values at these offsets, which ascend; a piece for each record batch."""
        at = 0
        while at < len(offsets):
            chunk = self._chunk(topic, int(offsets[at]))
            behind = int(offsets.searchsorted(chunk.end_offset))
            yield self._values(topic, chunk, offsets[at:behind])
            at = behind

    def _chunk(self, topic: Topic, offset: int) -> Chunk:
        (place,) = topic.places(PARTITION, offset, offset + 1)
        chunks = self._reader.chunks(place, topic.name, PARTITION)
        return chunks[bisect_right(chunks, offset, key=lambda chunk: chunk.base_offset) - 1]

    def _values(self, topic: Topic, chunk: Chunk, offsets: Numbers) -> pa.Array:
        batch = self._batch(topic, chunk)
        known = Slice(topic.name, PARTITION, chunk.base_offset, batch, chunk.end_offset)
        rows = offsets - chunk.base_offset if chunk.dense else known.offsets().searchsorted(offsets)
        if rows[-1] - rows[0] + 1 == len(rows):
            return batch.column("value").slice(rows[0], len(rows))
        return batch.column("value").take(number_column(rows))

    def _batch(self, topic: Topic, chunk: Chunk) -> pa.RecordBatch:
        """The verified values of a chunk; the last ones are cached."""
        key = chunk.location, chunk.base_offset
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = self._reader.read(
                chunk,
                chunk.base_offset,
                chunk.end_offset,
                topic=topic.name,
                partition=PARTITION,
                layout=topic.layout(_READ),
            )
            if len(self._batches) > _BATCHES_KEPT:
                self._batches.popitem(last=False)
        else:
            self._batches.move_to_end(key)
        return batch


class Ends:
    """The ends of queues that are in no run yet, as a part without messages.

    Queues with such an end begin anew here.
    """

    def __init__(self, ends: Parts, before: int) -> None:
        self._ends, self._before = ends, before

    @property
    def has_beginnings(self) -> bool:
        """Whether any queue begins anew here."""
        return len(self._ends) > 0

    def offsets(self, names: pa.Array) -> Numbers:
        """The offset of each queue's last end; -1 if it has none."""
        return self._ends.lasts(names, self._before)

    def beginnings_of(self, names: pa.Array) -> Numbers:
        """The index at which each queue begins anew, 0; -1 for a queue without an end."""
        return np.where(self.offsets(names) < 0, -1, 0)

    def spans(self, names: pa.Array) -> tuple[Numbers, Numbers]:
        """No rows of any queue."""
        nothing = np.zeros(len(names), np.int64)
        return nothing, nothing

    def gathered(self, firsts: Numbers, counts: Numbers) -> Iterator[RowRanges]:
        """No messages."""
        return iter(())

    def offsets_at(self, rows: Numbers, borders: Numbers) -> Numbers:
        """No offsets of no rows."""
        return rows


class LooseRows:
    """Messages of a range of offsets that are in no run yet, sorted by queue."""

    has_beginnings = False

    def __init__(
        self, part: Part, ends: Ends, read: Callable[[Numbers], Iterator[pa.Array]]
    ) -> None:
        self._part, self._ends, self._read = part, ends, read

    def beginnings_of(self, names: pa.Array) -> Numbers:
        """No queue begins anew here: -1 for each."""
        return np.full(len(names), -1)

    def spans(self, names: pa.Array) -> tuple[Numbers, Numbers]:
        """The first row of each queue after its last end, and the row behind its last."""
        firsts, behinds = self._part.table.spans(names)
        if self._ends.has_beginnings:
            firsts = firsts + self._part.counts(names, self._ends.offsets(names))
        return firsts, behinds

    def gathered(self, firsts: Numbers, counts: Numbers) -> Iterator[RowRanges]:
        """The messages in ranges of rows, read in the order of their offsets."""
        offsets = self._part.offsets[ranges(firsts, counts)]
        wanted, rows = np.unique(offsets, return_inverse=True)
        yield gathered(list(self._read(wanted)), rows, np.ones_like(rows)).copied()

    def offsets_at(self, rows: Numbers, borders: Numbers) -> Numbers:
        """The offsets of some rows."""
        return self._part.offsets[rows]
