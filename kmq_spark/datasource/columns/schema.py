"""The columns that Spark sees, in Spark's and in Arrow's words.

Spark refuses record batches whose Arrow schema differs in anything from what it derives itself:
order, types, zone and nullability. A test compares these two with Spark's own mapping.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
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

_COLUMNS: tuple[tuple[str, DataType, pa.DataType], ...] = (
    ("key", BinaryType(), pa.binary()),
    ("value", BinaryType(), pa.binary()),
    ("topic", StringType(), pa.string()),
    ("partition", IntegerType(), pa.int32()),
    ("offset", LongType(), pa.int64()),
    ("timestamp", TimestampType(), pa.timestamp("us", tz="UTC")),
    ("timestampType", IntegerType(), pa.int32()),
)

_HEADERS = (
    "headers",
    HEADERS,
    pa.list_(
        pa.field(
            "element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        )
    ),
)


_PROPERTIES = ("properties", PROPERTIES, pa.map_(pa.string(), pa.string()))

#: Keyed topics only: a message's queue and its index there; null in a record that is no message.
_QUEUES: tuple[tuple[str, DataType, pa.DataType], ...] = (
    ("queue", BinaryType(), pa.binary()),
    ("index", LongType(), pa.int64()),
)
QUEUE_COLUMNS = frozenset(name for name, _, _ in _QUEUES)

#: Tells a topic from an earlier one of its name; only option `columns` asks for it.
_TOPIC_ID = ("topicId", StringType(), pa.string())


def spark_schema(*, include_headers: bool, include_properties: bool, keyed: bool) -> StructType:
    """The columns of a read, as Spark declares them; `keyed` topics have two more."""
    columns = _columns(headers=include_headers, properties=include_properties, keyed=keyed)
    return StructType([StructField(name, kind) for name, kind, _ in columns])


def all_columns(*, keyed: bool) -> StructType:
    """Every column that a read of untyped topics can have."""
    columns = (*_columns(headers=True, properties=True, keyed=keyed), _TOPIC_ID)
    return StructType([StructField(name, kind) for name, kind, _ in columns])


def arrow_columns(names: Iterable[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, which every record batch must have exactly."""
    columns = (*_columns(headers=True, properties=True, keyed=True), _TOPIC_ID)
    kinds = {name: kind for name, _, kind in columns}
    return pa.schema([(name, kinds[name]) for name in names])


def _columns(
    *, headers: bool, properties: bool, keyed: bool
) -> tuple[tuple[str, DataType, pa.DataType], ...]:
    more = ((_HEADERS,) * headers, (_PROPERTIES,) * properties, _QUEUES * keyed)
    return (*_COLUMNS, *chain.from_iterable(more))
