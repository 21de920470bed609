"""Which records a topic takes: one rule, for a single send and for a million rows at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, overload

import numpy as np

from kmq_spark.client.encoding.routing import Routes, Rows
from kmq_spark.errors import InvalidRequestError
from kmq_storage import limits
from kmq_storage.format.binary_columns import row_bounds
from kmq_storage.format.plain_columns import flags_of
from kmq_storage.format.records import keys_of
from kmq_storage.log.state.topic_state import Topic

if TYPE_CHECKING:
    import numpy.typing as npt

Sizes: TypeAlias = "npt.NDArray[np.int64]"


def one_is_unstorable(topic: Topic, size: int, partition: int, key: bytes | None) -> bool:
    """Whether the topic can't take a record of this size and key in this partition."""
    return _unstorable(topic, size, partition) or (
        topic.settings.keyed and key is not None and not _is_name(len(key))
    )


def unstorable(topic: Topic, rows: Rows, routes: Routes) -> npt.NDArray[np.bool_]:
    """Which rows the topic can't take in these partitions."""
    bad = _unstorable(topic, rows.sizes, routes)
    keys = keys_of(rows.batch) if topic.settings.keyed else None
    if keys is not None:
        is_bad = ~_is_name(np.diff(row_bounds(keys)))
        # Without a key it is no message.
        bad |= is_bad & flags_of(keys.is_valid()) if keys.null_count else is_bad
    return bad


@overload
def _unstorable(topic: Topic, sizes: int, routes: int) -> bool: ...
@overload
def _unstorable(topic: Topic, sizes: Sizes, routes: Routes) -> npt.NDArray[np.bool_]: ...
def _unstorable(topic: Topic, sizes: int | Sizes, routes: Routes) -> bool | npt.NDArray[np.bool_]:
    is_too_large = sizes > topic.settings.max_record_bytes
    return is_too_large | (routes < 0) | (routes >= topic.partitions)


@overload
def _is_name(length: int) -> bool: ...
@overload
def _is_name(length: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]: ...
def _is_name(length: int | npt.NDArray[np.int32]) -> bool | npt.NDArray[np.bool_]:
    return (length >= 1) & (length <= limits.QUEUE_NAME_BYTES_MAX)


def why_unstorable(topic: Topic, rows: Rows, routes: Routes, row: int) -> InvalidRequestError:
    """Return why the topic can't take this row."""
    partition = routes if isinstance(routes, int) else int(routes[row])
    keys = keys_of(rows.batch)
    key = None if keys is None else keys[row].as_py()
    said = rows.said.get(row)
    return why_one_is_unstorable(topic, int(rows.sizes[row]), partition, key, said)


def why_one_is_unstorable(
    topic: Topic, size: int, partition: int, key: bytes | None, said: str | None = None
) -> InvalidRequestError:
    """Return why the topic can't take a record of this size and key in this partition.

    `said`: the answer of a partitioner that is no partition.
    """
    limit = topic.settings.max_record_bytes
    if size > limit:
        return InvalidRequestError(
            f"record of {size} bytes is too large: topic {topic.name} takes up to {limit} "
            "(max_record_bytes)",
            topic=topic.name,
            size=size,
            limit=limit,
        )
    if topic.settings.keyed and key is not None and not _is_name(len(key)):
        return InvalidRequestError(
            f"a key of topic {topic.name} is the name of a queue, of 1 to "
            f"{limits.QUEUE_NAME_BYTES_MAX} bytes, not {len(key)}",
            topic=topic.name,
            field="key",
        )
    named = f"the partitioner said {said}"
    if said is None:  # rows that were read from a wider topic have its partitions in a column
        named = f"not {partition}: leave the partition out, or drop its column, or add partitions"
    return InvalidRequestError(
        f"topic {topic.name} has partitions 0 to {topic.partitions - 1}, {named}",
        topic=topic.name,
        partition=partition,
    )


def check_storable(topic: Topic, rows: Rows, routes: Routes) -> None:
    """InvalidRequestError for the first row that the topic can't take."""
    bad = unstorable(topic, rows, routes)
    if bad.any():
        raise why_unstorable(topic, rows, routes, int(np.argmax(bad)))
