"""The columns of typed topics in Spark's words, and in the Arrow types that Spark expects for them.

Spark has no unsigned numbers and no half floats: they come as the next wider type. A column whose
type has no counterpart at all is refused at load(), by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import pyarrow as pa
from pyarrow import types
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kmq_spark.datasource.columns.schema import HEADERS, PROPERTIES
from kmq_spark.datasource.spark_versions import IN_UTC
from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.evolution import is_wider
from kmq_storage.format.typed import stored_type
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import nearest

_METADATA = (
    StructField("_topic", StringType()),
    StructField("_partition", IntegerType()),
    StructField("_offset", LongType()),
    StructField("_timestamp", TimestampType()),
)
METADATA_NAMES = tuple(field.name for field in _METADATA)
#: Columns that a read has only if option `columns` names them.
_EXTRAS = (
    StructField("_topicId", StringType()),
    StructField("_key", BinaryType()),
    StructField("_headers", HEADERS),
    StructField("_properties", PROPERTIES),
)
_ALWAYS = (*_METADATA, *_EXTRAS)
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("ns"),
    pa.time32("ms"): pa.time64("ns"),
}
_MICROSECONDS = {pa.time64("ns"): pa.time64("us")}


def one_schema(topics: Sequence[Topic]) -> pa.Schema:
    """Return the schema of typed topics that are read together.

    InvalidRequestError, naming two, where they differ.
    """
    schemas = [topic.settings.schema for topic in topics]
    for topic, schema in zip(topics, schemas, strict=True):
        if schema != schemas[0]:
            raise InvalidRequestError(
                f"topics {topics[0].name} and {topic.name} have different schemas: load them one "
                "by one, or only the columns that both have (option 'columns')",
                topic=topic.name,
            )
    return schemas[0]


def check_one_kind(topics: Sequence[Topic]) -> None:
    """InvalidRequestError for typed topics beside untyped ones."""
    for topic in topics:
        if bool(topic.settings.schemas) != bool(topics[0].settings.schemas):
            raise InvalidRequestError(
                f"topics {topics[0].name} and {topic.name} have different schemas (one is typed): "
                "one DataFrame can't hold both, load them one by one",
                topic=topic.name,
            )


def chosen_of_all(names: Sequence[str], topics: Sequence[Topic]) -> StructType:
    """Columns of typed topics; InvalidRequestError unless each topic has them, of one type."""
    first, *others = {topic.settings.schemas: topic for topic in topics}.values()
    found = chosen(names, typed_columns(first, names), _names_of(first))
    for topic in others:
        own = {field.name: field.dataType for field in typed_columns(topic, names).fields}
        for field in found.fields:
            kind = own.get(field.name)
            if kind != field.dataType:
                there = "not there" if kind is None else kind.simpleString()
                raise InvalidRequestError(
                    f"option 'columns' names {field.name!r}, which is "
                    f"{field.dataType.simpleString()} in topic {first.name}, and {there} in topic "
                    f"{topic.name}: load them one by one",
                    option="columns",
                    topic=topic.name,
                )
    return found


def chosen(names: Sequence[str], there: StructType, known: Sequence[str]) -> StructType:
    """The columns of these names, in their order; InvalidRequestError for one that isn't there.

    `known`: all names that there are.
    """
    for name in names:
        if name not in there.names:
            hint = nearest(name, known) or f"; there are {', '.join(known)}"
            raise InvalidRequestError(
                f"option 'columns' names {name!r}, which no record has{hint}", option="columns"
            )
    return StructType([there[name] for name in names])


def typed_spark_schema(schema: pa.Schema, *, include_metadata: bool) -> StructType:
    """The columns of a read of a typed topic, as Spark declares them."""
    fields = [StructField(field.name, _spark_type(field)) for field in schema]
    return StructType([*fields, *(_METADATA if include_metadata else ())])


def typed_columns(topic: Topic, names: Collection[str]) -> StructType:
    """Those of these columns that a read of a typed topic can have.

    InvalidRequestError if Spark has no type for one of them; it needs none for the others.
    """
    own = [StructField(f.name, _spark_type(f)) for f in _schema_of(topic) if f.name in names]
    return StructType([*own, *(field for field in _ALWAYS if field.name in names)])


def _names_of(topic: Topic) -> list[str]:
    return [*_schema_of(topic).names, *(field.name for field in _ALWAYS)]


def _schema_of(topic: Topic) -> pa.Schema:
    schema = topic.settings.schema
    assert schema is not None, "a typed topic has a schema"
    return schema


def _spark_type(field: pa.Field) -> DataType:
    try:
        kind: DataType = from_arrow_type(_known_to_spark(stored_type(field.type)))
        spark_arrow_schema(StructType([StructField(field.name, kind)]))  # refuses some, too
    except (PySparkException, ValueError) as error:
        raise InvalidRequestError(
            f"column {field.name!r} is {field.type}, for which Spark has no type; "
            "leave it out by option 'columns', or read it with store.read",
            column=field.name,
        ) from error
    return kind


def _known_to_spark(kind: pa.DataType) -> pa.DataType:
    """Return the type that holds the same values in Spark, where nested values may be null."""
    return _with_leaves(kind, _WIDER)


@lru_cache(maxsize=1024)
def exact_times(kind: pa.DataType) -> pa.DataType | None:
    """Return the type with its times of day in microseconds; None for a type without any.

    Spark takes them as nanoseconds, and cuts them to microseconds.
    """
    exact = _with_leaves(kind, _MICROSECONDS)
    return None if exact == _with_leaves(kind, {}) else exact


def _with_leaves(kind: pa.DataType, other: Mapping[pa.DataType, pa.DataType]) -> pa.DataType:
    """Return the type with its leaf types replaced, at any depth."""
    if types.is_struct(kind):
        return pa.struct([pa.field(part.name, _with_leaves(part.type, other)) for part in kind])
    if types.is_map(kind):
        return pa.map_(_with_leaves(kind.key_type, other), _with_leaves(kind.item_type, other))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_with_leaves(kind.value_type, other))
    return other.get(kind, kind)


def spark_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that every record batch must have exactly."""
    return to_arrow_schema(schema, **IN_UTC)


def lacking(wanted: StructType, current: StructType) -> StructField | None:
    """Return the first column that a read was planned for and can't get now; None if there is none.

    A number may have become a wider one: the topic's schema may have grown since load().
    """
    kinds = {field.name: field.dataType for field in current.fields}
    for field in wanted.fields:
        kind = kinds.get(field.name)
        if kind is None or not (kind == field.dataType or _may_have_grown(field.dataType, kind)):
            return field
    return None


def _may_have_grown(old: DataType, new: DataType) -> bool:
    """Whether a column that Spark reads as `new` may have been read as `old` before."""
    if not (isinstance(old, NumericType) and isinstance(new, NumericType)):
        return False
    before, after = to_arrow_type(old), to_arrow_type(new)
    from_unsigned = types.is_integer(before) and after == _WIDER[pa.uint64()]
    return from_unsigned or is_wider(before, after)
