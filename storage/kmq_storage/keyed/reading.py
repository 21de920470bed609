"""Reading keyed queues: an index that follows the topic, and the messages that it points at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError, NotFoundError, OffsetOutOfRangeError
from kmq_storage.keyed.index import QueueIndex, RunRows
from kmq_storage.keyed.loose import Ends, LooseMessages, LooseRows
from kmq_storage.keyed.losses import Losses
from kmq_storage.keyed.many import Asked, QueueRows
from kmq_storage.keyed.topic import PARTITION, keyed_topic
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import looking_again
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.objects.fork import reopen_in_child

_Found = TypeVar("_Found")

#: More messages than a queue can have, small enough that sums with an index fit into 64 bits.
_MESSAGES = 1 << 48


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a queue."""

    offset: int
    index: int
    value: bytes


class QueueReader:
    """Reads the queues of one keyed topic at its last visible commit; safe for any threads."""

    def __init__(self, log: CommitLog, name: str) -> None:
        self._log = log
        self._name = name
        self._start()
        reopen_in_child(self._after_fork)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._reader = ChunkReader(self._log.files, at_random=True)
        self._loose = LooseMessages(self._reader)
        self._index = QueueIndex(self._log, self._reader)
        self._losses = Losses()
        self._topic_id = b""
        self._state: StoreState | None = None

    def _after_fork(self) -> None:
        """Begin anew, since another thread of the parent may have been reading."""
        self._start()

    def size(self, queue: bytes) -> int:
        """The number of a queue's messages; 0 for an unknown queue."""
        first, behind = self.span(queue)
        return behind - first

    def span(self, queue: bytes) -> tuple[int, int]:
        """The index of a queue's first message, and the index behind its last."""
        return self._looking(lambda index, _: index.span(queue))

    def names(self) -> pa.ChunkedArray:
        """The names of all queues, sorted by their bytes."""
        return self._looking(lambda index, _: index.names())

    def messages(
        self, queue: bytes, first: int, most: int, *, telling: bool = False
    ) -> pa.ChunkedArray:
        """The messages of a queue from index `first` on, at most `most`, in order.

        They come in pieces as they are stored, since one column has at most 2 GiB.

        - **OffsetOutOfRangeError** when the index is below the queue's first.
        - **DataLossError**, once and only with `telling`, when a repair gave up records that may
          have been among these messages.
        - **CorruptionError** when there may be more messages that can't be read.
        """

        def found(index: QueueIndex, topic: Topic) -> pa.ChunkedArray:
            if first < index.first(queue):
                raise _given_up(index, topic, queue, first)
            if telling:
                self._losses.check(index, topic, queue, first, most)
            in_runs, offsets = index.places(queue, first, most)
            values = [value for rows in in_runs for value in _values_of(rows, topic, queue)]
            whole = pa.chunked_array([*values, *self._loose.read(topic, offsets)], pa.binary())
            self._check_end(topic, len(whole), most)
            return whole

        return self._looking(found)

    def at(self, queue: bytes, offsets: Sequence[int], most: int) -> list[Message]:
        """A queue's messages at these offsets, as far as they exist, at most `most`."""
        if not offsets:
            return []

        def found(index: QueueIndex, topic: Topic) -> list[Message]:
            there: list[Message] = []
            for offset in offsets:
                if len(there) == most:
                    break
                some = self._from(index, topic, queue, index.index_from(queue, offset), 1)
                there += [message for message in some if message.offset == offset]
            return there

        return self._looking(found)

    def since(self, queue: bytes, offset: int, most: int) -> list[Message]:
        """A queue's messages from an offset on, at most `most`.

        DataLossError, once, when a repair gave up records that may have been among them.
        """

        def found(index: QueueIndex, topic: Topic) -> list[Message]:
            some = self._from(index, topic, queue, index.index_from(queue, offset), most)
            if some:
                low = max(offset, index.began(queue))
                self._losses.check_between(topic, queue, low, some[-1].offset)
            return some

        return self._looking(found)

    def size_from(self, queue: bytes, offset: int) -> int:
        """The number of a queue's messages from an offset on."""
        return self._looking(
            lambda index, _: index.span(queue)[1] - index.index_from(queue, offset)
        )

    def _from(
        self, index: QueueIndex, topic: Topic, queue: bytes, first: int, most: int
    ) -> list[Message]:
        in_runs, offsets = index.places(queue, first, most)
        of_runs = [rows.run.offsets(rows.first, rows.behind) for rows in in_runs]
        values = [value for rows in in_runs for value in _values_of(rows, topic, queue)]
        places = np.concatenate([*of_runs, offsets]).tolist()
        values += self._loose.read(topic, offsets)
        found = pa.chunked_array(values, pa.binary()).to_pylist()
        return list(map(Message, places, range(first, first + len(places)), found))

    def many(self, queues: pa.Array, firsts: Numbers, most: int) -> pa.RecordBatch:
        """At most `most` messages of each queue, each from its own first index on.

        The result has the columns `queue`, `index` and `value`, in the order of the request. An
        index of -1 stands for the queue's first. OffsetOutOfRangeError for an index below it,
        CorruptionError when there may be more messages that can't be read.
        """
        asked = Asked(queues, firsts, min(most, _MESSAGES))

        def found(index: QueueIndex, topic: Topic) -> pa.RecordBatch:
            ends = Ends(index.ends, index.end)
            read = partial(self._loose.read, topic)
            loose = (LooseRows(part, ends, read) for part in index.loose)
            parts: list[QueueRows] = [*index.runs, ends, *loose]
            for queue, first in asked.given_up(parts):
                raise _given_up(index, topic, queue, first)
            self._losses.check_many(index, topic, asked, parts)
            answer = asked.answer(parts)
            self._check_end(topic, answer.num_rows, asked.most * len(queues))
            return answer

        try:
            return self._looking(found)
        except CorruptionError:
            for queue, first in zip(queues.to_pylist(), firsts.tolist(), strict=True):
                first = first if first >= 0 else self.span(queue)[0]
                self.messages(queue, first, most)  # its error names the damaged queue
            raise

    def index_of(self, queue: bytes, offset: int, topic_id: bytes) -> int:
        """The index of a queue's message at an offset of the topic with this id.

        NotFoundError when another topic has its name by now.
        """

        def found(index: QueueIndex, topic: Topic) -> int:
            _check_same(topic, topic_id)
            return index.index_at(queue, offset)

        return self._looking(found)

    def indexes_of(self, queues: pa.Array, offset: int, topic_id: bytes) -> Numbers:
        """As `index_of`, for messages of these queues at consecutive offsets from `offset` on."""

        def found(index: QueueIndex, topic: Topic) -> Numbers:
            _check_same(topic, topic_id)
            return index.indexes(queues, offset)

        return self._looking(found)

    def _looking(self, look: Callable[[QueueIndex, Topic], _Found]) -> _Found:
        """Call `look` with an index of the visible state, and again if files moved."""

        def looked(state: StoreState) -> _Found:
            topic = keyed_topic(state, self._name)
            return look(self._known(state, topic), topic)

        with self._lock:
            return looking_again(self._log, looked)

    def _known(self, state: StoreState, topic: Topic) -> QueueIndex:
        """The index, brought up to a state."""
        end = topic.partition(PARTITION).end
        # Commits that were not durable may have been lost and replaced by others.
        replaced = state is not self._state and not self._log.durable
        if replaced or topic.id != self._topic_id or end < self._index.end:
            self._index = QueueIndex(self._log, self._reader)
            self._losses = self._losses if topic.id == self._topic_id else Losses()
            self._topic_id = topic.id
            self._loose.forget()
        self._state = state
        self._index.follow(topic)
        return self._index

    def _check_end(self, topic: Topic, found: int, most: int) -> None:
        """CorruptionError when fewer messages than wanted were found and the end is damaged."""
        if self._state is not None and found < most:
            self._state.check_end(topic.name, PARTITION)


def _check_same(topic: Topic, topic_id: bytes) -> None:
    if topic.id != topic_id:
        raise NotFoundError(
            f"the messages were stored in a topic {topic.name} that was deleted since, and another "
            "one has its name now: their indexes are not known any more",
            topic=topic.name,
        )


def _given_up(index: QueueIndex, topic: Topic, queue: bytes, first: int) -> OffsetOutOfRangeError:
    """The error for an index below a queue's first."""
    start, end = index.span(queue)
    return OffsetOutOfRangeError(
        f"message {first} of queue {queue!r} in {topic.name} is not kept any more, the queue has "
        f"{start} to {end} (next)",
        topic=topic.name,
        partition=PARTITION,
        queue=queue,
        offset=first,
        start=start,
        end=end,
    )


def _values_of(rows: RunRows, topic: Topic, queue: bytes) -> Iterator[pa.Array]:
    """The messages in rows of a run; CorruptionError names queue and indexes."""
    run, index = rows.run, rows.index
    try:
        for values in run.values(rows.first, rows.behind):
            yield values
            index += len(values)
    except CorruptionError as error:
        if error.context.get("missing"):
            raise  # the records may have moved
        row = rows.first + index - rows.index
        behind = min(run.batch_end(row), run.rows_of(queue)[1])  # the whole damaged batch
        last = index + behind - row - 1
        raise CorruptionError(
            f"messages {index} to {last} of queue {queue!r} in {topic.name} can't be read: "
            f"{error.message}; or go on from index {last + 1}",
            **error.context,
            queue=queue,
            first=index,
            last=last,
        ) from error
