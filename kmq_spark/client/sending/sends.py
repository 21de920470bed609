"""What waits in a producer: rows sent one by one, sequences, and Arrow data.

Each is an Outcome too: it holds its rows until they are committed, and finds their places after.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Sequence
from inspect import iscoroutine
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from kmq_spark.client.encoding.waiting_extras import WaitingExtras, plain_among
from kmq_spark.client.handles.send_future import Expedite, Outcome
from kmq_spark.client.records.metadata import BatchMetadata, RecordMetadata
from kmq_spark.client.records.values import Extras
from kmq_spark.errors import InvalidRequestError, KmqError
from kmq_storage.names import queue_of_log, users_topic

if TYPE_CHECKING:
    from kmq_spark.client.sending.arrow_work import ArrowWork
    from kmq_spark.client.sending.topic_arrow import CheckedBatch

_LOGGER = logging.getLogger(__name__)

_timestamp = itemgetter(Extras._fields.index("timestamp"))

OnDelivery = Callable[[KmqError | None, RecordMetadata | None], object]


class Places(Protocol):
    """Where committed rows went."""

    #: Tells the topic from a later one of its name.
    topic_id: bytes

    def places(self, first: int, end: int) -> tuple[list[int], list[int]]:
        """Partitions and offsets of the rows from `first` up to `end`."""

    def times(self, first: int, sent: list[int]) -> list[int]:
        """The timestamps of rows from `first` on, which were `sent` with these."""

    def duplicates(self, first: int, end: int) -> Iterable[bool]:
        """Tell which of the rows are not stored, since a record with their `uniq` was before."""


class Sends(Outcome):
    """Records of one topic that were handed in together."""

    __slots__ = ("failure", "size", "topic")

    def __init__(self, topic: str, expedite: Expedite) -> None:
        super().__init__(expedite)
        self.topic = topic
        #: Roughly the bytes that it holds in memory.
        self.size = 0
        self.failure: KmqError | None = None

    def __len__(self) -> int:
        raise NotImplementedError

    def error(self, index: int) -> KmqError | None:
        """Return why it failed."""
        return self.failure

    def first_error(self) -> KmqError | None:
        """Return why something of it can't be stored, if so."""
        return self.failure

    def let_go(self) -> None:
        """Drop the data: it is stored, or on its way."""

    def finish(self) -> None:
        """Wake waiting callers, and drop the data: futures that are kept must not keep it."""
        self.let_go()
        super().finish()


class RowSends(Sends):
    """Records sent one by one; each is accepted or refused for itself."""

    __slots__ = (
        "_chosen_times",
        "_count",
        "_places",
        "_start",
        "alarm",
        "extras",
        "has_plain",
        "keys",
        "row_errors",
        "times",
        "user_callbacks",
        "values",
    )

    def __init__(self, topic: str, expedite: Expedite) -> None:
        super().__init__(topic, expedite)
        self.values: list[Any] = []
        self.keys: list[bytes | None] = []
        #: Nanoseconds since 1970 UTC, when `send` was called.
        self.times: list[int] | array[int] = []
        self.extras: dict[int, WaitingExtras] = {}
        #: Whether some extras may be none that are packed, so that it pays to look at each.
        self.has_plain = False
        #: The size in bytes at which the producer is told that enough has gathered.
        self.alarm = 0
        self.user_callbacks: list[tuple[int, OnDelivery]] = []
        self.row_errors: dict[int, KmqError] = {}
        self._places: Places | None = None
        self._start = 0
        self._count: int | None = None
        #: UTC microseconds of rows whose timestamp the caller chose.
        self._chosen_times: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.values) if self._count is None else self._count

    @property
    def topic_id(self) -> bytes:
        """The id of the topic that has the rows, once they are committed."""
        assert self._places is not None, "only committed rows have a place"
        return self._places.topic_id

    def take_back(self, index: int) -> None:
        """Forget the last row, of which perhaps only a part was added."""
        for column in (self.values, self.keys, self.times):
            del column[index:]
        self.extras.pop(index, None)

    def fail_rows(self, rows: Iterable[int], error: KmqError) -> None:
        """Fail these rows; the others can still be stored."""
        self.row_errors.update(dict.fromkeys(rows, error))

    def placed(self, places: Places, start: int) -> None:
        """Remember what knows where the rows went; ours begin there at `start`."""
        self._places, self._start = places, start

    def error(self, index: int) -> KmqError | None:
        """Return why this row failed."""
        return self.failure or self.row_errors.get(index)

    def first_error(self) -> KmqError | None:
        """Return why a row can't be stored, if so."""
        return self.failure or next(iter(self.row_errors.values()), None)

    def place(self, index: int) -> RecordMetadata | list[RecordMetadata]:
        """Return where this row is stored."""
        return self._places_of(index, index + 1)[0]

    def _places_of(self, first: int, end: int) -> list[RecordMetadata]:
        """Return where the rows from `first` up to `end` are; meaningless for rows that failed."""
        assert self._places is not None, "only committed rows have a place"
        partitions, offsets = self._places.places(self._start + first, self._start + end)
        times = [time // 1000 for time in self.times[first:end]]
        if self._chosen_times:
            times = [self._chosen_times.get(first + n, time) for n, time in enumerate(times)]
        times = self._places.times(self._start + first, times)
        duplicates = self._places.duplicates(self._start + first, self._start + end)
        queue = queue_of_log(self.topic)
        shown, more = (
            (self.topic, ()) if queue is None else (None, (repeat(queue), repeat(self.topic_id)))
        )
        members = zip(repeat(shown), partitions, offsets, times, duplicates, *more, strict=False)
        return list(map(RecordMetadata, members))

    def let_go(self) -> None:
        """Keep the number of rows and their timestamps only."""
        if self._count is None:
            self._count = len(self.values)
        plain = plain_among(self.extras) if self.has_plain else {}
        self._chosen_times |= {
            row: time for row, each in plain.items() if (time := _timestamp(each)) is not None
        }
        self.values, self.keys, self.extras = [], [], {}

    @property
    def calls_back(self) -> bool:
        """Whether it has callbacks."""
        return bool(self.user_callbacks or self._callbacks)

    def call_back(self) -> None:
        """Run the callbacks, `on_delivery` in the order of the sends."""
        super().call_back()
        stored = self._places is not None and self.failure is None and self.user_callbacks
        places = self._places_of(0, len(self)) if stored else []
        for index, callback in self.user_callbacks:
            error = self.error(index)
            try:
                answer = callback(error, None if error else places[index])
                if iscoroutine(answer):
                    answer.close()
                    raise InvalidRequestError(
                        "nobody awaits it: on_delivery must be a plain function"
                    )
            except BaseException:  # also what would end this thread, which others wait for
                _LOGGER.exception("on_delivery failed for a record of topic %s", self.topic)


class BatchSend(RowSends):
    """A sequence of records that is stored whole or not at all."""

    __slots__ = ()

    def fail_rows(self, rows: Iterable[int], error: KmqError) -> None:
        """Fail all rows because of these."""
        self.failure = self.failure or error

    def place(self, index: int) -> list[RecordMetadata]:
        """Return where every row is stored, in order."""
        return self._places_of(0, len(self)) if len(self) else []


class ArrowSend(Sends):
    """Arrow data that is stored whole or not at all."""

    __slots__ = ("_rows", "batches", "offsets", "partition", "topic_id", "work")

    def __init__(
        self,
        topic: str,
        batches: Sequence[CheckedBatch],
        partition: int | None,
        expedite: Expedite,
    ) -> None:
        super().__init__(topic, expedite)
        self.batches = batches
        self.partition = partition
        #: What was encoded ahead of its commit.
        self.work: ArrowWork | None = None
        self._rows: int = sum(each.batch.num_rows for each in batches)
        self.size = sum(int(each.batch.nbytes) for each in batches)
        #: First offset and the one after the last, per partition.
        self.offsets: dict[int, tuple[int, int]] = {}
        #: The id of the topic that has them.
        self.topic_id = b""

    def __len__(self) -> int:
        return self._rows

    def let_go(self) -> None:
        """Keep the number of rows only."""
        self.batches, self.work = (), None

    def place(self, index: int) -> BatchMetadata:
        """Return where the rows are stored."""
        return BatchMetadata(users_topic(self.topic), self._rows, self.offsets)
