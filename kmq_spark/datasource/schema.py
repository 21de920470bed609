"""The columns that Spark sees, in Spark's and in Arrow's words.

Spark refuses record batches whose Arrow schema differs in anything from what it derives itself:
order, types, zone and nullability. A test holds these two side by side with Spark's own mapping.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

#: What Kafka calls CreateTime: the producer's clock, not the log's.
CREATE_TIME = 0

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

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
    ArrayType(_HEADER),
    pa.list_(
        pa.field(
            "element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        )
    ),
)


def spark_schema(*, include_headers: bool) -> StructType:
    """The columns of a read, as Spark declares them."""
    return StructType([StructField(name, kind) for name, kind, _ in _columns(include_headers)])


def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """The same columns as the Arrow schema that every record batch must have exactly."""
    return pa.schema([pa.field(name, kind) for name, _, kind in _columns(include_headers)])


def _columns(include_headers: bool) -> tuple[tuple[str, DataType, pa.DataType], ...]:
    return (*_COLUMNS, _HEADERS) if include_headers else _COLUMNS
