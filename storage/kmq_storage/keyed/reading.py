"""Reading keyed queues: an index that follows the topic, and the messages it points at.

An index in a queue is the number of the queue's messages with lower offsets, so it follows from
the records alone: nothing is assigned, and every process finds the same.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from kmq_storage.errors import DataLossError
from kmq_storage.format.records import keys_of
from kmq_storage.keyed.parts import Parts
from kmq_storage.keyed.topic import PARTITION, keyed_topic
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import looking_again
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.scan import Slice, scan
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic
from kmq_storage.model import Chunk, Location
from kmq_storage.objects.fork import reopen_in_child

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[np.int64]

_Found = TypeVar("_Found")

#: What tells the queue of a record, and whether it is a message.
_INDEXED = frozenset({"key", "value"})
_READ = frozenset({"value"})
_SCAN_ROWS = 65_536
#: Rows that are sorted into the index at a time.
_SORTED_ROWS = 1 << 20
#: Record batches that stay at hand: the messages of a queue may stand in as many.
_BATCHES_KEPT = 64


class QueueReader:
    """The queues of one keyed topic, as of its last visible commit. Safe for any threads."""

    def __init__(self, log: CommitLog, name: str) -> None:
        self._log = log
        self._name = name
        self._start()
        reopen_in_child(self)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._reader = ChunkReader(self._log.disk)
        self._batches: OrderedDict[Location, pa.RecordBatch] = OrderedDict()
        self._parts = Parts()
        self._topic_id = b""
        self._state: StoreState | None = None

    def after_fork_in_child(self) -> None:
        """Another thread of the parent may have been at it."""
        self._start()

    def size(self, queue: bytes) -> int:
        """How many messages a queue has; 0 for one that is not known."""
        return self._looking(lambda _: self._parts.size(queue))

    def names(self) -> pa.Array:
        """The names of all queues, in the order of their bytes."""
        return self._looking(lambda _: self._parts.names())

    def messages(self, queue: bytes, first: int, most: int) -> pa.Array:
        """The messages of a queue from an index on, at most so many, in order."""

        def found(topic: Topic) -> pa.Array:
            return self._read(topic, self._parts.offsets(queue, first, most))

        return self._looking(found)

    def index_of(self, queue: bytes, offset: int) -> int:
        """The index of the message of a queue that stands at an offset."""
        return self._looking(lambda _: self._parts.index_of(queue, offset))

    def indexes_of(self, queues: pa.Array, offset: int) -> _Numbers:
        """The indexes of messages of these queues that stand one behind the other."""
        return self._looking(lambda _: self._parts.indexes_of(queues, offset))

    def _looking(self, look: Callable[[Topic], _Found]) -> _Found:
        """Look with an index that knows what is visible, once more where files moved."""

        def looked(state: StoreState) -> _Found:
            topic = keyed_topic(state, self._name)
            self._follow(state, topic)
            return look(topic)

        with self._lock:
            return looking_again(self._log, looked)

    def _follow(self, state: StoreState, topic: Topic) -> None:
        end = topic.partition(PARTITION).end
        # Written commits that nobody waited for may be lost, and others come in their place.
        replaced = state is not self._state and not self._log.durable
        if replaced or topic.id != self._topic_id or end < self._parts.end:
            self._parts, self._topic_id = Parts(), topic.id
            self._batches.clear()
        self._state = state
        if self._parts.end < end:
            for keys, offsets, behind in _sorted_at_once(self._slices(topic, end)):
                self._parts.add(keys, offsets, behind)

    def _slices(self, topic: Topic, end: int) -> Iterator[Slice]:
        """What the index doesn't know yet; what was cut out by a repair is passed over."""
        layout, at = topic.layout(_INDEXED), self._parts.end
        while at < end:
            try:
                for part in scan(
                    self._log,
                    self._reader,
                    topic,
                    PARTITION,
                    (at, end),
                    batch_rows=_SCAN_ROWS,
                    layout=layout,
                ):
                    yield part
                    at = part.end
                return
            except DataLossError as error:
                at = error.context["end"]

    def _read(self, topic: Topic, offsets: _Numbers) -> pa.Array:
        values = [pa.array([], pa.binary())]
        at = 0
        while at < len(offsets):
            chunk = self._chunk(topic, int(offsets[at]))
            behind = int(offsets.searchsorted(chunk.end_offset))
            values.append(self._values(topic, chunk, offsets[at:behind]))
            at = behind
        return pa.concat_arrays(values)

    def _chunk(self, topic: Topic, offset: int) -> Chunk:
        (place,) = topic.places(PARTITION, offset, offset + 1)
        chunks = self._reader.chunks(place)
        return chunks[bisect_right(chunks, offset, key=lambda chunk: chunk.base_offset) - 1]

    def _values(self, topic: Topic, chunk: Chunk, offsets: _Numbers) -> pa.Array:
        batch = self._batch(topic, chunk)
        known = Slice(topic.name, PARTITION, chunk.base_offset, batch, chunk.end_offset)
        rows = offsets - chunk.base_offset if chunk.dense else known.offsets().searchsorted(offsets)
        if rows[-1] - rows[0] + 1 == len(rows):
            return batch.column("value").slice(rows[0], len(rows))
        return batch.column("value").take(pa.array(rows))

    def _batch(self, topic: Topic, chunk: Chunk) -> pa.RecordBatch:
        """The values of a chunk; the last ones stay at hand, proven."""
        batch = self._batches.get(chunk.location)
        if batch is None:
            batch = self._batches[chunk.location] = self._reader.read(
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
            self._batches.move_to_end(chunk.location)
        return batch


def _sorted_at_once(slices: Iterator[Slice]) -> Iterator[tuple[pa.Array, _Numbers, int]]:
    """The queues and offsets of messages, as many at a time as are worth sorting."""
    keys: list[pa.Array] = []
    offsets: list[_Numbers] = []
    rows = end = 0
    for part in slices:
        found, places = _messages(part)
        keys.append(found)
        offsets.append(places)
        rows, end = rows + len(found), part.end
        if rows >= _SORTED_ROWS:
            yield pa.concat_arrays(keys), np.concatenate(offsets), end
            keys, offsets, rows = [], [], 0
    if keys:
        yield pa.concat_arrays(keys), np.concatenate(offsets), end


def _messages(part: Slice) -> tuple[pa.Array, _Numbers]:
    """The queues and offsets of the records that are messages: those with key and value."""
    keys = keys_of(part.batch)
    values = part.batch.column("value")
    offsets = part.offsets()
    if keys is None:
        return pa.array([], pa.binary()), offsets[:0]
    if keys.null_count or values.null_count:
        wanted = np.asarray(keys.is_valid()) & np.asarray(values.is_valid())
        return keys.filter(pa.array(wanted)), offsets[wanted]
    return keys, offsets
