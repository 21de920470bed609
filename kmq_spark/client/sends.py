"""What waits in a producer: rows sent one by one, sequences, and Arrow data.

Each is an Outcome too: it knows its rows until they are committed, and their places after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kmq_spark.client.delivery import Delivery, Outcome
from kmq_spark.client.encoding import rows_of_arrow, rows_of_columns
from kmq_spark.client.metadata import BatchMetadata, RecordMetadata
from kmq_spark.client.routing import Router, Routes, Rows, ranks, split
from kmq_spark.client.values import Extras
from kmq_spark.errors import InvalidRequestError, KmqError
from kmq_storage.log.staging import PartitionRecords
from kmq_storage.log.state import Topic
from kmq_storage.model import to_datetime

OnDelivery = Callable[[KmqError | None, RecordMetadata | None], object]


class Sends(Outcome):
    """Rows of one topic that are accepted or refused together."""

    __slots__ = ("failure", "size", "topic")

    def __init__(self, topic: str, expedite: Callable[[], None]) -> None:
        super().__init__(expedite)
        self.topic = topic
        self.size = 0
        self.failure: KmqError | None = None

    def __len__(self) -> int:
        raise NotImplementedError

    def encode(self, topic: Topic, router: Router, now: int) -> list[PartitionRecords]:
        """The rows per partition; KmqError when they can't be stored."""
        raise NotImplementedError

    def place_at(self, first_offsets: dict[int, int]) -> None:
        """Remember where each partition's first row went."""
        raise NotImplementedError

    def refuse(self, error: KmqError) -> bool:
        """Take a refusal; True when some rows are left that can be tried again."""
        self.failure = error
        return False

    def error(self, index: int) -> KmqError | None:
        """Why it failed."""
        return self.failure


def check_rows(topic: Topic, rows: Rows, routes: Routes) -> npt.NDArray[np.bool_] | None:
    """The rows that the topic can't take, or None when it can take them all."""
    bad = rows.sizes > topic.settings.max_record_bytes
    if isinstance(routes, int):
        bad |= not 0 <= routes < topic.partitions
    else:
        bad |= (routes < 0) | (routes >= topic.partitions)
    return bad if bad.any() else None


def error_of_row(topic: Topic, rows: Rows, routes: Routes, row: int) -> InvalidRequestError:
    """Why the topic can't take this row."""
    size, limit = int(rows.sizes[row]), topic.settings.max_record_bytes
    if size > limit:
        return InvalidRequestError(
            f"record of {size} bytes is too large: topic {topic.name} takes up to {limit} "
            "(max_record_bytes)",
            topic=topic.name, size=size, limit=limit,
        )
    partition = routes if isinstance(routes, int) else int(routes[row])
    return InvalidRequestError(
        f"topic {topic.name} has partitions 0 to {topic.partitions - 1}, not {partition}",
        topic=topic.name, partition=partition,
    )


class RowSends(Sends):
    """Records sent one by one; each is accepted or refused for itself."""

    __slots__ = (
        "_bases", "_errors", "_kept", "_ranks", "_routes", "alarm", "extras", "keys", "times",
        "user_callbacks", "values",
    )

    def __init__(self, topic: str, expedite: Callable[[], None]) -> None:
        super().__init__(topic, expedite)
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        #: The size in bytes at which the producer is told that enough has gathered.
        self.alarm = 0
        #: Nanoseconds since 1970 UTC, when `send` was called.
        self.times: list[int] = []
        self.extras: dict[int, Extras] = {}
        self.user_callbacks: list[tuple[int, OnDelivery]] = []
        self._errors: dict[int, KmqError] = {}
        self._kept: npt.NDArray[np.intp] | None = None
        self._routes: Routes = 0
        self._ranks: npt.NDArray[np.int64] | None = None
        self._bases: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def _rows(self) -> Rows:
        times = np.array(self.times, np.int64) // 1000
        return rows_of_columns(self.values, self.keys, times, self.extras)

    def encode(self, topic: Topic, router: Router, now: int) -> list[PartitionRecords]:
        """The rows per partition, without those that failed; empty when none is left."""
        rows = self._rows()
        if self._kept is not None:
            mask = np.zeros(len(self.values), np.bool_)
            mask[self._kept] = True
            rows = rows.keep(mask)
            if not len(rows.sizes):
                return []
        routes = self._safe_routes(topic, router, rows)
        bad = check_rows(topic, rows, routes)
        if bad is not None:
            return self._without(topic, router, rows, routes, bad, now)
        self._routes, self._ranks = routes, None
        return split(topic, rows, routes)

    def _safe_routes(self, topic: Topic, router: Router, rows: Rows) -> Routes:
        try:
            return router.routes(topic, rows)
        except Exception as error:
            raise InvalidRequestError(
                f"partitioner failed for topic {topic.name}: {error!r}", topic=topic.name
            ) from error

    def _without(
        self, topic: Topic, router: Router, rows: Rows, routes: Routes,
        bad: npt.NDArray[np.bool_], now: int,
    ) -> list[PartitionRecords]:
        kept = np.arange(len(self.values)) if self._kept is None else self._kept
        for row in np.flatnonzero(bad):
            self._errors[int(kept[row])] = error_of_row(topic, rows, routes, int(row))
        self._kept = kept[~bad]
        return self.encode(topic, router, now)

    def refuse(self, error: KmqError) -> bool:
        """When the topic is nearly full, the first rows still fit; else all fail."""
        room = error.context.get("room", 0)
        kept = np.arange(len(self.values)) if self._kept is None else self._kept
        for row in kept[room:]:
            self._errors[int(row)] = error
        self._kept = kept[:room]
        return bool(room)

    def place_at(self, first_offsets: dict[int, int]) -> None:
        """Remember where each partition's first row went."""
        self._bases = first_offsets

    def error(self, index: int) -> KmqError | None:
        """Why this row failed."""
        return self.failure or self._errors.get(index)

    def place(self, index: int) -> RecordMetadata:
        """Where this row is."""
        row = index if self._kept is None else int(np.searchsorted(self._kept, index))
        if self._ranks is None:
            self._ranks = ranks(self._routes, len(self) if self._kept is None else len(self._kept))
        partition = self._routes if isinstance(self._routes, int) else int(self._routes[row])
        extra = self.extras.get(index)
        chosen = extra.timestamp if extra else None
        time = self.times[index] // 1000 if chosen is None else chosen
        offset = self._bases[partition] + int(self._ranks[row])
        return RecordMetadata(self.topic, partition, offset, to_datetime(time))

    def finish(self) -> None:
        """Wake who waits, and call `on_delivery` in the order of the sends."""
        self.values, self.keys = _Forgotten(len(self.values)), []
        super().finish()
        for index, callback in self.user_callbacks:
            error = self.error(index)
            metadata = None if error else self.place(index)
            Delivery[Any](self, index).invoke(lambda _: callback(error, metadata))  # noqa: B023


class _Forgotten(list[bytes | None]):
    """Only the number of values that were there: futures that are kept must not keep the data."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __len__(self) -> int:
        return self._count


class BatchSend(RowSends):
    """A sequence of records that is stored whole or not at all."""

    __slots__ = ()

    def encode(self, topic: Topic, router: Router, now: int) -> list[PartitionRecords]:
        """The rows per partition; the first row that can't be stored refuses them all."""
        rows = self._rows()
        routes = self._safe_routes(topic, router, rows)
        bad = check_rows(topic, rows, routes)
        if bad is not None:
            raise error_of_row(topic, rows, routes, int(bad.argmax()))
        self._routes = routes
        return split(topic, rows, routes)

    def refuse(self, error: KmqError) -> bool:
        """All rows fail together."""
        self.failure = error
        return False

    def place(self, index: int) -> Any:
        """Where every row is, in order."""
        return [RowSends.place(self, row) for row in range(len(self))]


class ArrowSend(Sends):
    """Arrow data that is stored whole or not at all."""

    __slots__ = ("_batches", "_counts", "_offsets", "_partition", "_rows")

    def __init__(
        self, topic: str, batches: Sequence[pa.RecordBatch], partition: int | None,
        expedite: Callable[[], None],
    ) -> None:
        super().__init__(topic, expedite)
        self._batches = batches
        self._partition = partition
        self._rows = sum(batch.num_rows for batch in batches)
        self.size = sum(batch.nbytes for batch in batches)
        self._counts: dict[int, int] = {}
        self._offsets: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return self._rows

    def encode(self, topic: Topic, router: Router, now: int) -> list[PartitionRecords]:
        """The rows per partition; the first row that can't be stored refuses them all."""
        found: list[PartitionRecords] = []
        self._counts = {}
        for batch in self._batches:
            rows = rows_of_arrow(batch, now)
            routes = self._routes(topic, router, rows)
            bad = check_rows(topic, rows, routes)
            if bad is not None:
                raise error_of_row(topic, rows, routes, int(bad.argmax()))
            found += split(topic, rows, routes)
        for records in found:
            count = sum(sized.batch.num_rows for sized in records.batches)
            self._counts[records.partition] = self._counts.get(records.partition, 0) + count
        return found

    def _routes(self, topic: Topic, router: Router, rows: Rows) -> Routes:
        if self._partition is not None and rows.chosen is None:
            return self._partition
        routes = router.routes(topic, rows)
        if self._partition is None or rows.chosen is None:
            return routes
        return np.where(rows.chosen >= 0, rows.chosen, self._partition).astype(np.int32)

    def place_at(self, first_offsets: dict[int, int]) -> None:
        """Remember where each partition's rows went."""
        self._batches = ()
        self._offsets = {
            partition: (first, first + self._counts[partition])
            for partition, first in sorted(first_offsets.items())
        }

    def place(self, index: int) -> BatchMetadata:
        """Where the rows are."""
        return BatchMetadata(self.topic, self._rows, self._offsets)
