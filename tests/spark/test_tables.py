"""Finds tables of a store's state that only Spark itself refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from kmq_spark.datasource.columns.tables import TABLES, table_spark_schema
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark


def test_every_table_is_a_data_frame_and_a_view_and_no_stream(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 5)
    shop.store.seal()
    shop.send("orders", 1, 2)
    shop.commit("billing", "orders", {0: 3})
    with shop.store.consumer("idle", topics=["orders"]):
        rows = {}
        for table in TABLES:
            frame = spark.read.format("kmq").option("TABLE", table).load(shop.url)
            assert frame.schema == table_spark_schema(table)
            rows[table] = [row.asDict(recursive=True) for row in frame.collect()]
    assert {table: len(found) for table, found in rows.items()} == {
        "topics": 1,
        "partitions": 3,
        "groups": 6,
        "members": 1,
        "segments": 1,
        "commits": shop.lsn(),
        "queues": 0,
    }
    spark.sql(
        f"create or replace temporary view groups using kmq "
        f"options (path '{shop.url}', `table` 'groups')"
    )
    behind = spark.sql(
        "select partition, lag, committed from groups "
        "where lag > 0 and `group` = 'billing' order by 1"
    )
    assert [tuple(row) for row in behind.collect()] == [(0, 2, 3), (1, 2, None)]
    with pytest.raises(AnalysisException, match="did you mean 'segments'"):
        spark.read.format("kmq").option("table", "segment").load(shop.url)
    stream = spark.readStream.format("kmq").option("table", "topics").load(shop.url)
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException, match="the store's state is no stream"):
        writer.start().awaitTermination(60)
