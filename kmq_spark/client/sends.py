"""What waits in a producer: rows sent one by one, sequences, and Arrow data.

Each is an Outcome too: it holds its rows until they are committed, and finds their places after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from kmq_spark.client.delivery import Delivery, Outcome
from kmq_spark.client.metadata import BatchMetadata, RecordMetadata
from kmq_spark.client.values import Extras
from kmq_spark.errors import KmqError
from kmq_storage.model import to_datetime

OnDelivery = Callable[[KmqError | None, RecordMetadata | None], object]


class Places(Protocol):
    """Where committed rows went."""

    def place(self, row: int) -> tuple[int, int]:
        """Partition and offset of a row."""


class Sends(Outcome):
    """Records of one topic that were handed in together."""

    __slots__ = ("failure", "size", "topic")

    def __init__(self, topic: str, expedite: Callable[[], None]) -> None:
        super().__init__(expedite)
        self.topic = topic
        #: Bytes that it holds in memory, roughly.
        self.size = 0
        self.failure: KmqError | None = None

    def __len__(self) -> int:
        raise NotImplementedError

    def error(self, index: int) -> KmqError | None:
        """Why it failed."""
        return self.failure


class RowSends(Sends):
    """Records sent one by one; each is accepted or refused for itself."""

    __slots__ = (
        "_count",
        "_places",
        "_start",
        "alarm",
        "extras",
        "keys",
        "row_errors",
        "times",
        "user_callbacks",
        "values",
    )

    def __init__(self, topic: str, expedite: Callable[[], None]) -> None:
        super().__init__(topic, expedite)
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        #: Nanoseconds since 1970 UTC, when `send` was called.
        self.times: list[int] = []
        self.extras: dict[int, Extras] = {}
        #: The size in bytes at which the producer is told that enough has gathered.
        self.alarm = 0
        self.user_callbacks: list[tuple[int, OnDelivery]] = []
        self.row_errors: dict[int, KmqError] = {}
        self._places: Places | None = None
        self._start = 0
        self._count: int | None = None

    def __len__(self) -> int:
        return len(self.values) if self._count is None else self._count

    def fail_rows(self, rows: Iterable[int], error: KmqError) -> None:
        """These rows can't be stored; the others can."""
        self.row_errors.update(dict.fromkeys(rows, error))

    def placed(self, places: Places, start: int) -> None:
        """Remember who knows where the rows went; ours begin there at `start`."""
        self._places, self._start = places, start

    def error(self, index: int) -> KmqError | None:
        """Why this row failed."""
        return self.failure or self.row_errors.get(index)

    def place(self, index: int) -> RecordMetadata:
        """Where this row is."""
        assert self._places is not None, "only committed rows have a place"
        partition, offset = self._places.place(self._start + index)
        extra = self.extras.get(index)
        chosen = extra.timestamp if extra else None
        time = self.times[index] // 1000 if chosen is None else chosen
        return RecordMetadata(self.topic, partition, offset, to_datetime(time))

    def finish(self) -> None:
        """Wake who waits, and call `on_delivery` in the order of the sends."""
        self._count = len(self.values)
        self.values, self.keys = [], []  # futures that are kept must not keep the data
        super().finish()
        for index, callback in self.user_callbacks:
            Delivery[Any]((self, index)).invoke(self._told(index, callback))

    def _told(self, index: int, callback: OnDelivery) -> Callable[[Any], object]:
        error = self.error(index)
        metadata = None if error else self.place(index)
        return lambda _: callback(error, metadata)


class BatchSend(RowSends):
    """A sequence of records that is stored whole or not at all."""

    __slots__ = ()

    def fail_rows(self, rows: Iterable[int], error: KmqError) -> None:
        """One bad row refuses them all."""
        self.failure = self.failure or error

    def place(self, index: int) -> Any:
        """Where every row is, in order."""
        return [RowSends.place(self, row) for row in range(len(self))]


class ArrowSend(Sends):
    """Arrow data that is stored whole or not at all."""

    __slots__ = ("_rows", "batches", "offsets", "partition", "work")

    def __init__(
        self,
        topic: str,
        batches: Sequence[pa.RecordBatch],
        partition: int | None,
        expedite: Callable[[], None],
    ) -> None:
        super().__init__(topic, expedite)
        self.batches = batches
        self.partition = partition
        #: What is prepared of its way into a commit (`client.work.ArrowWork`).
        self.work: Any = None
        self._rows: int = sum(batch.num_rows for batch in batches)
        self.size = sum(int(batch.nbytes) for batch in batches)
        #: First offset and the one after the last, per partition.
        self.offsets: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return self._rows

    def finish(self) -> None:
        """Wake who waits, and let go of the data."""
        self.batches, self.work = (), None
        super().finish()

    def place(self, index: int) -> BatchMetadata:
        """Where the rows are."""
        return BatchMetadata(self.topic, self._rows, self.offsets)
