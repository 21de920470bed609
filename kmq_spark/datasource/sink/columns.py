"""The columns of a write: checked on the driver, before any task starts.

Errors use the words of Spark's Kafka sink, and then say what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from kmq_storage.errors import InvalidRequestError
from kmq_storage.names import queue_of_log

#: A typed topic's own columns may be named `topic`, so its rows are routed by this one.
TYPED_TOPIC = "_topic"

_TEXT_OR_BINARY = "binary or string"
_HEADER = StructType().add("key", StringType()).add("value", BinaryType())
#: A property of any type: one member is not null.
_TYPED_VALUE = (
    StructType()
    .add("int", LongType())
    .add("float", DoubleType())
    .add("text", StringType())
    .add("bytes", BinaryType())
    .add("bool", BooleanType())
)


def _is_text_or_binary(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_headers(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and _same(kind.elementType, _HEADER)


def _is_properties(kind: DataType) -> bool:
    if not isinstance(kind, MapType) or not isinstance(kind.keyType, StringType):
        return False
    return isinstance(kind.valueType, StringType) or _same(kind.valueType, _TYPED_VALUE)


def _same(one: DataType, other: DataType) -> bool:
    """Whether two types are the same but for nullability."""
    return one.simpleString() == other.simpleString()


#: By column: a test of its type, and how errors describe the type.
_EXPECTED: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "value": (_is_text_or_binary, _TEXT_OR_BINARY),
    "key": (_is_text_or_binary, _TEXT_OR_BINARY),
    "topic": (lambda kind: isinstance(kind, StringType), "string"),
    "partition": (lambda kind: isinstance(kind, IntegerType), "int"),
    "headers": (_is_headers, f"array<{_HEADER.simpleString()}>"),
    "timestamp": (lambda kind: isinstance(kind, TimestampType), "timestamp"),
    "properties": (
        _is_properties,
        f"map<string,string> or map<string,{_TYPED_VALUE.simpleString()}>",
    ),
}


def check_routed_columns(schema: StructType) -> None:
    """InvalidRequestError unless a column names the topic of each row."""
    if TYPED_TOPIC in schema.names:
        kind = schema[TYPED_TOPIC].dataType
        if not isinstance(kind, StringType):
            raise _unsupported(TYPED_TOPIC, kind, "string")
    elif "topic" in schema.names:
        check_sink_columns(schema)
    else:
        raise InvalidRequestError(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            "setting a topic: option 'topic', or a column 'topic' of type string ('_topic' for "
            "rows of typed topics)",
            option="topic",
        )


def check_transport(schema: StructType) -> None:
    """InvalidRequestError for columns that can't go through Arrow, even if kmq ignores them."""
    for field in schema.fields:
        if schema.names.count(field.name) > 1:
            raise InvalidRequestError(
                f"column {field.name!r} is there twice, and Spark can't hand both to a sink in "
                "Python: drop one, or rename it",
                column=field.name,
            )
        if isinstance(field.dataType, YearMonthIntervalType):
            raise InvalidRequestError(
                f"column {field.name!r} is {field.dataType.simpleString()}, which Spark can't hand "
                "to a sink in Python: drop it, or cast it (to string, or to int)",
                column=field.name,
            )


def unused_columns(topic: str) -> tuple[str, ...]:
    """Return the columns that are ignored because an option chose the topic or the queue."""
    return ("topic",) if queue_of_log(topic) is None else ("topic", "partition")


def check_sink_columns(schema: StructType, unused: Collection[str] = ()) -> None:
    """InvalidRequestError for a missing column or a wrong type; others are ignored."""
    taken = [name for name in _EXPECTED if name not in unused]
    kinds = {field.name: field.dataType for field in schema.fields}
    if "value" not in kinds:
        raise InvalidRequestError(
            f"Required attribute 'value' not found: a write to kmq needs a column 'value' of "
            f"{_TEXT_OR_BINARY} (there are {', '.join(kinds) or 'none'})",
            column="value",
        )
    for name in taken:
        fits, expected = _EXPECTED[name]
        if name in kinds and not fits(kinds[name]):
            raise _unsupported(name, kinds[name], expected)


def _unsupported(column: str, kind: DataType, expected: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{column} attribute unsupported type {kind.simpleString()}. {column} must be a(n) "
        f"{expected}: cast the column, or drop or rename it",
        column=column,
    )
