"""Finds columns of a write that are taken though they don't fit, or refused without their name."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
    YearMonthIntervalType,
)

from kmq_spark.datasource.sink.sink import Definition, Sink
from kmq_storage.errors import InvalidRequestError
from kmq_storage.model import TopicSettings

ORDERS = {"orders": Definition(bytes(16), 3, TopicSettings())}

TEXT, DATA = StringType(), BinaryType()
COLUMNS = {
    "no value": ([("key", TEXT)], "orders", "Required attribute 'value' not found"),
    "value is a number": (
        [("value", LongType())],
        "orders",
        r"value attribute unsupported type bigint. value must be a\(n\) binary or string",
    ),
    "key is a number": (
        [("value", TEXT), ("key", LongType())],
        "orders",
        "key attribute unsupported type bigint",
    ),
    "no topic at all": (
        [("value", TEXT)],
        None,
        "topic option required when no 'topic' attribute is present",
    ),
    "topic is binary": (
        [("value", TEXT), ("topic", DATA)],
        None,
        "topic attribute unsupported type binary",
    ),
    "partition is long": (
        [("value", TEXT), ("partition", LongType())],
        "orders",
        "partition must be a\\(n\\) int",
    ),
    "headers are a map": (
        [("value", TEXT), ("headers", MapType(TEXT, DATA))],
        "orders",
        "headers attribute unsupported type map",
    ),
    "headers of text": (
        [("value", TEXT), ("headers", ArrayType(StructType().add("key", TEXT).add("value", TEXT)))],
        "orders",
        r"must be a\(n\) array<struct<key:string,value:binary>>",
    ),
    "timestamp without zone": (
        [("value", TEXT), ("timestamp", TimestampNTZType())],
        "orders",
        "timestamp attribute unsupported type timestamp_ntz",
    ),
    "properties are numbers": (
        [("value", TEXT), ("properties", MapType(TEXT, LongType()))],
        "orders",
        "properties attribute unsupported type map<string,bigint>",
    ),
    "timestamp is text": (
        [("value", TEXT), ("timestamp", TEXT)],
        "orders",
        r"unsupported type string. timestamp must be a\(n\) timestamp: cast the column, or drop or",
    ),
    "unused interval of months": (
        [("value", TEXT), ("age", YearMonthIntervalType())],
        "orders",
        "column 'age' is interval year to month, which Spark can't hand .* drop it, or cast it",
    ),
    "typed topic is a number": ([("_topic", LongType())], None, "_topic attribute unsupported"),
    "value is there twice": ([("value", TEXT), ("value", TEXT)], "orders", "'value' is there tw"),
    "an unused column is there twice": (
        [("value", TEXT), ("id", LongType()), ("id", LongType())],
        "orders",
        "column 'id' is there twice, and Spark can't hand both .*: drop one, or rename it",
    ),
}


@pytest.mark.parametrize(("columns", "topic", "message"), COLUMNS.values(), ids=COLUMNS.keys())
def test_columns_that_do_not_fit_are_refused_by_name(
    columns: list[tuple[str, DataType]], topic: str | None, message: str
) -> None:
    schema = StructType([StructField(*column) for column in columns])
    with pytest.raises(InvalidRequestError, match=message):
        Sink(url="", lsn=0, topic=topic, definitions=ORDERS).check_columns(schema)


def test_columns_that_kmq_does_not_know_are_ignored() -> None:
    fields = [StructField("value", TEXT), StructField("other", LongType())]
    fields.append(StructField("variant", VariantType()))
    Sink(url="", lsn=0, topic="orders", definitions=ORDERS).check_columns(StructType(fields))


def test_a_topic_column_is_not_looked_at_where_the_topic_is_chosen() -> None:
    schema = StructType().add("value", TEXT).add("topic", LongType())
    Sink(url="", lsn=0, topic="orders", definitions=ORDERS).check_columns(schema)


def test_properties_are_text_or_typed_as_a_read_gives_them() -> None:
    value = "struct<int:bigint,float:double,text:string,bytes:binary,bool:boolean>"
    typed = StructType()
    for name, kind in (
        ("int", LongType()),
        ("float", DoubleType()),
        ("text", TEXT),
        ("bytes", DATA),
        ("bool", BooleanType()),
    ):
        typed = typed.add(name, kind)
    assert typed.simpleString() == value
    for kind in (MapType(TEXT, TEXT), MapType(TEXT, TEXT, False), MapType(TEXT, typed)):
        schema = StructType().add("value", DATA).add("properties", kind)
        Sink(url="", lsn=0, topic="orders", definitions=ORDERS).check_columns(schema)


def test_the_drivers_process_of_a_write_loads_nothing_that_reads_or_encodes() -> None:
    """Spark waits for two such processes in each batch, until they have imported all they name."""
    code = (
        "import sys, kmq_spark.datasource.writer, kmq_spark.datasource.sink.commit; "
        "from kmq_spark.datasource.options.sink_options import parse_sink_options; "
        "parse_sink_options({'path': 'x', 'topic': 't'}); "
        "print([name for name in sys.modules if '.planning' in name or '.encoding' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
