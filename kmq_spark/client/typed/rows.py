"""From sends to rows in the stored columns, for topics of both kinds.

A row that doesn't fit its topic is refused alone: its future has the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from kmq_spark.client.encoding.routing import Rows
from kmq_spark.client.encoding.rows import binary_lengths, rows_of_columns, with_extras
from kmq_spark.client.encoding.waiting_extras import WaitingExtras
from kmq_spark.client.records.structured import TypedValue, is_structured, members_of
from kmq_spark.client.records.values import to_bytes
from kmq_spark.client.typed.topics import TypedColumns, checked_with_known, typed_columns
from kmq_spark.errors import InvalidRequestError, KmqError
from kmq_storage.format.records import TIMESTAMP_TYPE
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import check_name

if TYPE_CHECKING:
    import numpy.typing as npt

Times: TypeAlias = "npt.NDArray[np.int64]"

#: What a producer holds of a value: bytes, the columns of a typed one, or a tombstone.
Value = bytes | TypedValue | None
#: Called with the number of a row that can't be stored, and why.
Refuse = Callable[[int, KmqError], None]


def value_of(log: CommitLog, topic: str, value: Any, key: object) -> Value:
    """Return a value as the producer holds it; what is known to be wrong is refused at once."""
    if value is None:
        if key is None and typed_columns(_known(log, topic)) is not None:
            checked_with_known(log, topic, _check_takes_null)
        return None
    if not is_structured(value):
        is_plain = isinstance(value, str | bytes | bytearray | memoryview)
        if not is_plain and typed_columns(_known(log, topic)) is not None:
            raise no_columns(topic)
        return to_bytes("value", value)
    members = members_of(value)
    check_name("topic", topic)

    def checked(known: Topic | None) -> TypedValue:
        columns = typed_columns(known)
        if columns is not None:
            return TypedValue(columns.checker.check(topic, members), columns.schemas)
        if known is not None:
            raise _untyped(topic)
        return TypedValue(members)

    return checked_with_known(log, topic, checked)


def _known(log: CommitLog, topic: object) -> Topic | None:
    return log.known_state.find_topic(topic) if isinstance(topic, str) else None


def _check_takes_null(topic: Topic | None) -> None:
    if topic is not None and typed_columns(topic) is not None:
        raise _no_tombstone(topic.name)


def _no_tombstone(topic: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"a record of typed topic {topic} without a value needs a key: it is a tombstone",
        topic=topic,
        field="key",
    )


def _untyped(topic: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"topic {topic} is untyped: value must be bytes, text or None; "
        "a topic that is made with a schema takes columns",
        topic=topic,
        field="value",
    )


def no_columns(topic: str) -> InvalidRequestError:
    """Return the error for bytes, text or a number that is sent to a typed topic."""
    return InvalidRequestError(
        f"topic {topic} is typed: value must be a dict or dataclass with its columns",
        topic=topic,
        field="value",
    )


def rows_of_values(
    topic: Topic,
    values: Sequence[Value],
    keys: Sequence[bytes | None],
    times: Times,
    *,
    extras: Mapping[int, WaitingExtras],
    refuse: Refuse,
) -> Rows:
    """Rows of a topic from parallel lists; refused rows are there too, but hold nothing."""
    columns = typed_columns(topic)
    if columns is not None:
        members = _checked(topic.name, columns, values, keys, refuse=refuse)
        return _typed_rows(columns, members, keys, times, extras)
    try:
        return rows_of_columns(values, keys, times, extras)  # type: ignore[arg-type]
    except (TypeError, pa.ArrowException):  # the columns of a typed value are no bytes
        plain = _only_bytes(topic.name, values, refuse)
        return rows_of_columns(plain, keys, times, extras)


def _only_bytes(topic: str, values: Sequence[Value], refuse: Refuse) -> list[bytes | None]:
    found: list[bytes | None] = []
    for row, value in enumerate(values):
        if isinstance(value, TypedValue):
            refuse(row, _untyped(topic))
            value = None
        found.append(value)
    return found


def _checked(
    topic: str,
    columns: TypedColumns,
    values: Sequence[Value],
    keys: Sequence[bytes | None],
    *,
    refuse: Refuse,
) -> list[Mapping[str, Any] | None]:
    """The members of every row; None for a tombstone, and for a row that is refused."""
    found: list[Mapping[str, Any] | None] = []
    known: tuple[str, ...] = columns.schemas
    for row, value in enumerate(values):
        members = None
        try:
            if isinstance(value, TypedValue):
                members = value.columns
                if value.checked is not known and value.checked != known:
                    members = columns.checker.check(topic, members)
                else:
                    known = value.checked  # equal: make the next comparison one by identity
            elif value is not None:
                raise no_columns(topic)
            elif keys[row] is None:
                raise _no_tombstone(topic)
        except InvalidRequestError as error:
            refuse(row, error)
        found.append(members)
    return found


def _typed_rows(
    columns: TypedColumns,
    members: Sequence[Mapping[str, Any] | None],
    keys: Sequence[bytes | None],
    times: Times,
    extras: Mapping[int, WaitingExtras],
) -> Rows:
    from kmq_spark.client.typed.sizes import value_sizes  # loaded when there is a typed topic

    nothing: Mapping[str, Any] = {}
    own = {
        field.name: pa.array([(row or nothing).get(field.name) for row in members], field.type)
        for field in columns.stored
    }
    added: dict[str, pa.Array] = {}
    key_column = pa.array(keys, pa.binary())
    sizes = binary_lengths(key_column) + sum(map(value_sizes, own.values()))
    if key_column.null_count < len(key_column):
        added["key"] = key_column
    chosen = with_extras(added, times, sizes, extras) if extras else None
    added["timestamp"] = pa.array(times).view(TIMESTAMP_TYPE)
    if None in members:
        added["tombstone"] = pa.array([row is None for row in members], pa.bool_())
    return Rows(typed_batch(added, own), np.asarray(sizes), chosen, columns.version)


def typed_batch(added: Mapping[str, pa.Array], own: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A stored batch of a typed topic: own columns, and those of kmq that some row has."""
    before = {f"_{name}": added[name] for name in ("timestamp", "key") if name in added}
    names = ("headers", "properties", "tombstone")
    after = {f"_{name}": added[name] for name in names if name in added}
    columns = {**before, **own, **after}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
