"""The columns of untyped topics, as Spark declares them."""

from __future__ import annotations

from itertools import chain

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

#: What Kafka calls CreateTime: the producer's clock, not the log's.
CREATE_TIME = 0

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
#: Every value as text, bytes in Base64.
PROPERTIES = MapType(StringType(), StringType())

_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS = (StructField("headers", HEADERS),)
_PROPERTIES = (StructField("properties", PROPERTIES),)

#: Keyed topics only: a message's queue and its index there; null in a record that is no message.
_QUEUES = (StructField("queue", BinaryType()), StructField("index", LongType()))
QUEUE_COLUMNS = frozenset(field.name for field in _QUEUES)

#: Tells a topic from an earlier one of its name; only option `columns` asks for it.
_TOPIC_ID = StructField("topicId", StringType())


def spark_schema(*, include_headers: bool, include_properties: bool, keyed: bool) -> StructType:
    """The columns of a read; `keyed` topics have two more."""
    more = (_HEADERS * include_headers, _PROPERTIES * include_properties, _QUEUES * keyed)
    return StructType([*_COLUMNS, *chain.from_iterable(more)])


def all_columns(*, keyed: bool) -> StructType:
    """Every column that a read of untyped topics can have."""
    usual = spark_schema(include_headers=True, include_properties=True, keyed=keyed)
    return StructType([*usual.fields, _TOPIC_ID])
