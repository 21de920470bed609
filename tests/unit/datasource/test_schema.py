"""Finds columns that differ from those of Spark's Kafka source."""

from __future__ import annotations

from kmq_spark.datasource.columns.schema import all_columns, spark_schema
from tests.unit.datasource.engine import plain_columns


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    columns = spark_schema(include_headers=True, include_properties=True, keyed=False)
    assert columns.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>,"
        "properties:map<string,string>>"
    )
    assert plain_columns().names[-1] == "timestampType"
    assert all(field.nullable for field in all_columns(keyed=True))
