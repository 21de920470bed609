"""Which records a topic takes: one rule, for a single send and for a million rows at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, overload

import numpy as np

from kmq_spark.client.routing import Routes
from kmq_spark.errors import InvalidRequestError
from kmq_storage.log.topic_state import Topic

if TYPE_CHECKING:
    import numpy.typing as npt

Sizes: TypeAlias = "npt.NDArray[np.int64]"


@overload
def unstorable(topic: Topic, sizes: int, routes: int) -> bool: ...
@overload
def unstorable(topic: Topic, sizes: Sizes, routes: Routes) -> npt.NDArray[np.bool_]: ...
def unstorable(topic: Topic, sizes: int | Sizes, routes: Routes) -> bool | npt.NDArray[np.bool_]:
    """Whether the topic can't take a record of this size in this partition; of many, which."""
    is_too_large = sizes > topic.settings.max_record_bytes
    return is_too_large | (routes < 0) | (routes >= topic.partitions)


def why_unstorable(topic: Topic, sizes: Sizes, routes: Routes, row: int) -> InvalidRequestError:
    """Why the topic can't take this row."""
    partition = routes if isinstance(routes, int) else int(routes[row])
    return why_one_is_unstorable(topic, int(sizes[row]), partition)


def why_one_is_unstorable(topic: Topic, size: int, partition: int) -> InvalidRequestError:
    """Why the topic can't take a record of this size in this partition."""
    limit = topic.settings.max_record_bytes
    if size > limit:
        return InvalidRequestError(
            f"record of {size} bytes is too large: topic {topic.name} takes up to {limit} "
            "(max_record_bytes)",
            topic=topic.name,
            size=size,
            limit=limit,
        )
    named = f"not {partition}" if partition >= 0 else "and the partitioner named none of them"
    return InvalidRequestError(
        f"topic {topic.name} has partitions 0 to {topic.partitions - 1}, {named}",
        topic=topic.name,
        partition=partition,
    )


def check_storable(topic: Topic, sizes: Sizes, routes: Routes) -> None:
    """InvalidRequestError for the first row that the topic can't take."""
    bad = unstorable(topic, sizes, routes)
    if bad.any():
        raise why_unstorable(topic, sizes, routes, int(bad.argmax()))
