"""From rows of one topic to record batches per partition."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import iscoroutinefunction
from operator import index
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from kmq_spark.errors import InvalidRequestError
from kmq_storage import limits
from kmq_storage.format.binary_columns import row_bytes
from kmq_storage.format.murmur2 import murmur2, murmur2_of
from kmq_storage.format.plain_columns import flags_of, number_column
from kmq_storage.format.records import keys_of
from kmq_storage.log.staging import PartitionRecords, SizedBatch
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.waking import can_be_interrupted

if TYPE_CHECKING:
    import numpy.typing as npt

#: The partition of each row, or one for all.
Routes: TypeAlias = "npt.NDArray[np.int32] | int"

#: Bytes that are loaded from memory together.
_CACHE_LINE = 64

#: Up to this many keys, hashing one by one is faster: numpy takes 60 us for a single key.
_FEW = 16

Partitioner = Callable[[str, bytes | None, int], int]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one topic in the stored columns, with what is known of each row."""

    batch: pa.RecordBatch
    #: Bytes of key, value, headers and properties per row.
    sizes: npt.NDArray[np.int64]
    #: Partitions that the caller chose, or one for all; -1 where the partitioner decides, None
    #: where it always does.
    chosen: Routes | None = None
    #: Which version of a typed topic's schema the columns have; 0 in an untyped one.
    schema_version: int = 0
    #: Answers of a partitioner that are no partition, by row.
    said: dict[int, str] = field(default_factory=dict)

    def keep(self, rows: npt.NDArray[np.bool_]) -> Rows:
        """Only the rows of this mask."""
        chosen = self.chosen[rows] if isinstance(self.chosen, np.ndarray) else self.chosen
        batch = self.batch.filter(number_column(rows))
        return Rows(batch, self.sizes[rows], chosen, self.schema_version)


class Router:
    """Chooses partitions for the rows of one producer."""

    def __init__(self, partitioner: str | Partitioner, *, first_turn: int = 0) -> None:
        named = isinstance(partitioner, str) and partitioner == "murmur2"
        if not named and (not callable(partitioner) or iscoroutinefunction(partitioner)):
            raise InvalidRequestError(
                f"partitioner must be 'murmur2' or a plain callable, not {partitioner!r}",
                option="partitioner",
            )
        self._partitioner = None if isinstance(partitioner, str) else partitioner
        #: Where keyless rows begin: Spark's tasks begin at different partitions.
        self._first_turn = first_turn
        self._next_sticky: dict[bytes, int] = {}

    def routes(self, topic: Topic, rows: Rows) -> Routes:
        """Return where each row goes: the caller's choice, else by key, else the next partition."""
        if isinstance(rows.chosen, int):
            return rows.chosen
        decided = self._decide(topic, rows)
        if rows.chosen is None:
            return decided
        return np.where(rows.chosen >= 0, rows.chosen, decided).astype(np.int32)

    def _decide(self, topic: Topic, rows: Rows) -> Routes:
        if rows.chosen is not None and np.all(rows.chosen >= 0):
            return 0
        if self.by_hash and topic.partitions == 1:
            return 0  # without hashing keys, which takes four times as long as all else
        keys = keys_of(rows.batch)
        if self._partitioner is not None:
            return self._ask(self._partitioner, topic, keys, rows)
        if keys is None:
            return self.sticky(topic)
        by_key = partitions_by_key(keys, topic.partitions)
        if keys.null_count:
            keyed = flags_of(keys.is_valid())
            return np.where(keyed, by_key, self.sticky(topic)).astype(np.int32)
        return by_key

    @property
    def by_hash(self) -> bool:
        """Whether keys decide, and not a partitioner of the user's."""
        return self._partitioner is None

    @staticmethod
    def by_key(topic: Topic, key: bytes | None) -> int:
        """Return where records with this key go."""
        return (murmur2_of(key or b"") & 0x7FFFFFFF) % topic.partitions

    def sticky(self, topic: Topic) -> int:
        """Keyless records stick to one partition for a batch; the next batch takes the next."""
        turn = self._next_sticky.get(topic.id, self._first_turn)
        self._next_sticky[topic.id] = turn + 1
        return turn % topic.partitions

    @staticmethod
    def _ask(
        partitioner: Partitioner, topic: Topic, keys: pa.Array | None, rows: Rows
    ) -> npt.NDArray[np.int32]:
        """Ask the user's partitioner for each row whose partition the caller didn't choose.

        -1 marks an answer that is no partition.
        """
        count = len(rows.sizes)
        routes = np.full(count, -1, np.int32)
        by_row = [None] * count if keys is None else keys.to_pylist()
        theirs = range(count) if rows.chosen is None else np.flatnonzero(rows.chosen < 0).tolist()
        for row in theirs:
            answer = _answer(partitioner, topic, by_row[row])
            if isinstance(answer, str):
                rows.said[row] = answer
            else:
                routes[row] = answer
        return routes


def partitions_by_key(keys: pa.BinaryArray, partitions: int) -> npt.NDArray[np.int32]:
    """Return where Kafka's producer puts these keys: the positive hash modulo the number."""
    if len(keys) <= _FEW:
        hashes = np.array([murmur2_of(key or b"") for key in keys.to_pylist()], np.uint32)
    else:
        hashes = murmur2(keys)
    hashes &= np.uint32(0x7FFFFFFF)
    hashes %= np.uint32(partitions)
    return hashes.view(np.int32)


def _answer(partitioner: Partitioner, topic: Topic, key: bytes | None) -> int | str:
    """The partition that a user's partitioner returns, or an answer that is none, as text.

    InvalidRequestError when the partitioner raises an error.
    """
    try:
        answer = partitioner(topic.name, key, topic.partitions)
        with suppress(TypeError):
            number = -1 if isinstance(answer, bool) else index(answer)
            if 0 <= number < topic.partitions:
                return number
        return f"{answer!r:.80}"
    except BaseException as error:  # also what would end the thread
        if can_be_interrupted() and not isinstance(error, Exception):
            raise  # else the worker asks again
        raise InvalidRequestError(
            f"partitioner failed for topic {topic.name}: {error!r}", topic=topic.name
        ) from error


def split(topic: Topic, rows: Rows, routes: Routes) -> list[PartitionRecords]:
    """One group of record batches per partition; the order of the rows is kept in each."""
    if isinstance(routes, int):
        return [_records(topic, routes, rows)]
    if (routes == routes[0]).all():
        return [_records(topic, int(routes[0]), rows)]
    narrow = routes.astype(np.uint16) if topic.partitions <= 65_536 else routes
    order = np.argsort(narrow, kind="stable")  # a radix sort for 16 bits
    for column in rows.batch.columns:
        _fetch(column)
    batch, sizes = rows.batch.take(number_column(order)), rows.sizes[order]
    counts = np.bincount(routes)
    found, start = [], 0
    for partition in np.flatnonzero(counts):
        count = int(counts[partition])
        part = replace(rows, batch=batch.slice(start, count), sizes=sizes[start : start + count])
        found.append(_records(topic, int(partition), part))
        start += count
    return found


def _fetch(column: pa.Array) -> None:
    """Look at a binary column once from front to back, so that it is in the processor's caches.

    To gather rows from memory takes four times as long: the processor can't foresee where the
    next one is.
    """
    if column.type == pa.binary():
        np.max(row_bytes(column)[::_CACHE_LINE], initial=0)


def _records(topic: Topic, partition: int, rows: Rows) -> PartitionRecords:
    """Cut into batches of bounded rows and bytes, so that readers map little at a time."""
    batch, sizes = rows.batch, rows.sizes
    size = int(sizes.sum())
    average = max(size // max(len(sizes), 1), 1)
    step = max(1, min(limits.BATCH_ROWS_MAX, limits.STAGED_BATCH_BYTES // average))
    batches: tuple[SizedBatch, ...] = (SizedBatch(batch, size),)
    if batch.num_rows > step:
        batches = tuple(
            SizedBatch(batch.slice(start, step), int(sizes[start : start + step].sum()))
            for start in range(0, batch.num_rows, step)
        )
    return PartitionRecords(topic.name, topic.id, partition, batches, rows.schema_version)


def ranks(routes: Routes, count: int) -> npt.NDArray[np.int64]:
    """How many earlier rows went to the same partition, for every row."""
    if isinstance(routes, int):
        return np.arange(count)
    order = np.argsort(routes, kind="stable")
    counts = np.bincount(routes)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    found = np.empty(count, np.int64)
    found[order] = np.arange(count) - starts
    return found
