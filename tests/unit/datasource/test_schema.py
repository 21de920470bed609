"""Finds a schema that differs from what Spark derives: it refuses such batches while reading."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from kmq_spark.datasource.columns.schema import all_columns, arrow_columns, spark_schema
from tests.unit.datasource.engine import plain_columns


@pytest.mark.parametrize("keyed", [False, True])
def test_the_arrow_schema_is_exactly_the_one_spark_derives(keyed: bool) -> None:
    columns = all_columns(keyed=keyed)
    derived = to_arrow_schema(columns, timezone="UTC")
    assert derived.equals(arrow_columns(columns.names), check_metadata=True)


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    columns = spark_schema(include_headers=True, include_properties=True, keyed=False)
    assert columns.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>,"
        "properties:map<string,string>>"
    )
    assert plain_columns().names[-1] == "timestampType"
    assert all(field.nullable for field in all_columns(keyed=True))
