"""Writes to a typed topic: its own columns out of a DataFrame's, checked before any task starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyarrow import types
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from kmq_spark.client.encoding.rows import cast_column
from kmq_spark.client.records.beneath import beneath
from kmq_spark.client.records.fitting import is_rounded
from kmq_spark.client.typed.arrow import ADDED, check_typed_columns, is_list
from kmq_spark.client.typed.topics import TypedColumns
from kmq_spark.datasource.columns.typed_schema import METADATA_NAMES, spark_arrow_schema
from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.typed import is_own, stored_type

#: Types that Spark lacks, and the types in which a read returns them. A write takes these for the
#: declared ones.
_STAND_INS = {pa.uint64(): pa.decimal128(20, 0), pa.float16(): pa.float32()}

#: From this similarity on (difflib's ratio), a name is a misspelt column of the topic: of four
#: letters, one may be another, or two may have changed places.
_MISSPELT = 0.75


def check_typed_sink(schema: StructType, topic: str, columns: TypedColumns) -> None:
    """InvalidRequestError for a missing column or a wrong type; others are ignored."""
    check_spelling(schema.names, topic, columns)
    taken = StructType([f for f in schema.fields if f.name in taken_columns(columns)])
    try:
        arrow = spark_arrow_schema(taken)
    except PySparkException as error:
        raise InvalidRequestError(f"topic {topic} can't take these columns: {error}") from error
    for field, at in _standing_in(arrow, columns):
        arrow = arrow.set(at, field)
    check_typed_columns(arrow, topic, columns)
    for name in filter(arrow.names.__contains__, ADDED):
        cast_column(name, pa.nulls(0, arrow.field(name).type))  # refuses a type, however few rows


def _standing_in(schema: pa.Schema, columns: TypedColumns) -> Iterator[tuple[pa.Field, int]]:
    """Yield the declared columns that come in the wider types of a read, and their places.

    A column's type has the declared types in place of these; everything else in it is as it came.
    """
    for field in columns.declared:
        at = schema.get_field_index(field.name)
        kind = schema.field(at).type if at >= 0 else None
        if kind is not None and (narrow := _narrow_type(kind, stored_type(field.type))) != kind:
            yield field.with_type(narrow), at


def _narrow_type(given: Any, wanted: Any) -> pa.DataType:
    """Return the given type, with the declared types in place of those that a read returns."""
    if types.is_struct(given) and types.is_struct(wanted) and given.names == wanted.names:
        pairs = zip(given, wanted, strict=True)
        return pa.struct([one.with_type(_narrow_type(one.type, to.type)) for one, to in pairs])
    if types.is_map(given) and types.is_map(wanted):
        key = given.key_field.with_type(_narrow_type(given.key_type, wanted.key_type))
        item = _narrow_type(given.item_type, wanted.item_type)
        return pa.map_(key, given.item_field.with_type(item))
    if types.is_list(given) and is_list(wanted):
        inside = _narrow_type(given.value_type, wanted.value_type)
        return pa.list_(given.value_field.with_type(inside))
    return wanted if given == _STAND_INS.get(wanted) else given


def narrowed(batch: pa.RecordBatch, topic: str, columns: TypedColumns) -> pa.RecordBatch:
    """Return the rows in the declared types; InvalidRequestError for a value that would change."""
    for field, at in _standing_in(batch.schema, columns):
        batch = batch.set_column(at, field.name, _narrow(batch.column(at), topic, field))
    return batch


def _narrow(column: pa.Array, topic: str, field: pa.Field) -> pa.Array:
    try:
        found = column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise _changing(topic, field, str(error)) from error
    if any(map(is_rounded, _leaves(column), _leaves(found))):
        raise _changing(topic, field, "it would be rounded")
    return found


def _leaves(column: Any) -> Iterator[pa.Array]:
    """Yield the columns of plain values, inside lists, maps and structs at any depth."""
    if not types.is_nested(column.type):
        yield column
    elif len(column):
        for part in column.flatten() if types.is_struct(column.type) else beneath(column):
            yield from _leaves(part)


def _changing(topic: str, field: pa.Field, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"column {field.name!r} for topic {topic} holds a value that {field.type} can't: {why}",
        topic=topic,
        column=field.name,
    )


def taken_columns(columns: TypedColumns) -> tuple[str, ...]:
    """Which columns of a DataFrame a typed topic takes."""
    return (*columns.declared.names, *ADDED)


def check_spelling(names: Sequence[str], topic: str, columns: TypedColumns) -> None:
    """InvalidRequestError for names that would store nulls silently; letter case counts here."""
    declared, taken = columns.declared.names, taken_columns(columns)
    if (misspelt := _misspelt(tuple(names), taken)) is not None:
        name, own = misspelt
        why = "letter case counts" if own.lower() == name.lower() else "the rows lack it"
        raise InvalidRequestError(
            f"column {name!r}: topic {topic} has {own!r}, and {why}; rename it, or drop it if it "
            f"is another one (the topic takes {', '.join(taken)})",
            topic=topic,
            column=name,
        )
    if declared and set(declared).isdisjoint(names):
        raise InvalidRequestError(
            f"topic {topic} has columns {', '.join(declared)}, the rows have none of them (there "
            f"are {', '.join(names) or 'none'})",
            topic=topic,
        )


@lru_cache(maxsize=1024)
def _misspelt(names: tuple[str, ...], taken: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the first misspelt name, and the topic's column that it is like and the rows lack."""
    given, known = {*names}, {*taken, *METADATA_NAMES}
    by_spelling = {each.lower(): each for each in sorted(taken, key=lambda own: own not in given)}
    lacking = [lower for lower, own in by_spelling.items() if own not in given]
    for name in names:
        # Rows lack few columns, but may have thousands: comparing each with each takes minutes.
        if name not in known and _closest(name, lacking):
            own = by_spelling[_closest(name, by_spelling)[0]]
            if own not in given:
                return name, own
    return None


def _closest(name: str, spellings: Iterable[str]) -> list[str]:
    alike = [each for each in spellings if is_own(each) == is_own(name)]
    return get_close_matches(name.lower(), alike, n=1, cutoff=_MISSPELT)
