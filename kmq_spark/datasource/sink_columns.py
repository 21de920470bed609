"""The columns that a write takes: checked on the driver, before any task starts."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from kmq_storage.errors import InvalidRequestError


def _is_text_or_binary(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )


#: Type test and the words for it, by column.
_EXPECTED: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "value": (_is_text_or_binary, "binary or string"),
    "key": (_is_text_or_binary, "binary or string"),
    "topic": (lambda kind: isinstance(kind, StringType), "string"),
    "partition": (lambda kind: isinstance(kind, IntegerType), "int"),
    "headers": (_is_headers, "array<struct<key:string,value:binary>>"),
    "timestamp": (lambda kind: isinstance(kind, TimestampType), "timestamp"),
}


def check_sink_columns(schema: StructType, *, topic: str | None) -> None:
    """Raise InvalidRequestError for a missing column or a wrong type; others are ignored."""
    kinds = {field.name: field.dataType for field in schema.fields}
    for name in _EXPECTED:
        if schema.names.count(name) > 1:
            raise InvalidRequestError(f"column {name!r} is there twice", column=name)
    if "value" not in kinds:
        raise InvalidRequestError(
            f"column 'value' is missing (there are {', '.join(kinds) or 'none'}): a write to kmq "
            "needs it as binary or string",
            column="value",
        )
    if topic is None and "topic" not in kinds:
        raise InvalidRequestError(
            "the topic is missing: give option 'topic', or a column 'topic' of type string",
            option="topic",
        )
    for name, (fits, expected) in _EXPECTED.items():
        if name in kinds and not fits(kinds[name]):
            raise InvalidRequestError(
                f"column {name!r} is {kinds[name].simpleString()}: expected {expected}", column=name
            )
