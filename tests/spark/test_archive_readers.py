"""Archives as others read them: delta-rs, Polars, pandas and Arrow, without kmq."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kmq_spark import archive
from kmq_spark.archive import beginning
from tests.spark.running import patiently
from tests.spark.shop import Shop
from tests.support.spark import require_delta

_archive = partial(patiently, archive.run)


def _send(shop: Shop, kind: pa.DataType, value: int) -> None:
    schema = pa.schema([("x", kind)])
    if shop.store.log.refresh().find_topic("sums") is None:
        shop.store.create_topic("sums", schema=schema)
    shop.store.alter_topic("sums", schema=schema)
    with shop.store.producer() as producer:
        producer.send("sums", {"x": value})


def _whole(spark: SparkSession, shop: Shop, path: Path) -> list[Any]:
    reader = spark.read.format("kmq").option("subscribe", "sums").option("archive", str(path))
    return sorted(row.x for row in reader.load(shop.url).collect())


def test_any_reader_of_delta_opens_an_archive_unless_a_column_got_wider(
    spark: SparkSession, shop: Shop, tmp_path: Path
):
    require_delta(spark)
    path = tmp_path / "lake"
    _send(shop, pa.int8(), 7)
    _archive(spark, shop.url, path, topics=["sums"], file_format="delta", keep=0)
    _send(shop, pa.int8(), 8)
    _archive(spark, shop.url, path, keep=0)
    assert sorted(DeltaTable(path).to_pandas()["x"]) == [7, 8]
    assert sorted(pl.read_delta(str(path))["x"]) == [7, 8]
    _send(shop, pa.int16(), 300)
    _archive(spark, shop.url, path, keep=0)
    assert DeltaTable(path).protocol().reader_features == ["typeWidening"]
    table = spark.read.format("delta").load(str(path))
    assert sorted(row.x for row in table.collect()) == _whole(spark, shop, path) == [7, 8, 300]


def test_pandas_arrow_and_polars_read_a_parquet_archive_of_typed_topics(
    spark: SparkSession, shop: Shop, tmp_path: Path
):
    path = tmp_path / "lake"
    _send(shop, pa.int8(), 7)
    _archive(spark, shop.url, path, topics=["sums"], file_format="parquet", keep=0)
    _send(shop, pa.int8(), 8)
    _archive(spark, shop.url, path, keep=0)
    assert sorted(pd.read_parquet(path)["x"]) == [7, 8]
    assert sorted(pl.read_parquet(path / "**/*.parquet")["x"]) == [7, 8]
    assert sorted(pyarrow.parquet.read_table(path)["x"].to_pylist()) == [7, 8]
    rows = pyarrow.dataset.dataset(path, partitioning="hive").to_table().to_pylist()
    days = {f"{row['_timestamp']:%Y-%m-%d}" for row in rows}
    assert {row["kmq_topic"] for row in rows} == {"sums"}
    assert {str(row["kmq_day"]) for row in rows} == days
    _send(shop, pa.int8(), 9)
    assert _whole(spark, shop, path) == [7, 8, 9]


def test_a_parquet_archive_with_folders_of_older_versions_goes_on_with_them(
    spark: SparkSession, shop: Shop, tmp_path: Path
):
    path = tmp_path / "lake"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beginning, "SEEN_FOLDERS", None)  # as they began one
        _send(shop, pa.int8(), 7)
        _archive(spark, shop.url, path, topics=["sums"], file_format="parquet", keep=0)
    _send(shop, pa.int8(), 8)
    _archive(spark, shop.url, path, keep=0)
    assert len(list(path.glob("batch=*/_topic=sums"))) == 2
    frame = pd.read_parquet(path, ignore_prefixes=[".", "_kmq", "_SUCCESS"])
    assert sorted(frame["x"]) == _whole(spark, shop, path) == [7, 8]


def test_a_column_that_got_wider_in_a_parquet_archive_is_read_by_kmq_and_warned_of(
    spark: SparkSession, shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path, told = tmp_path / "lake", "column x got wider"
    _send(shop, pa.int8(), 7)
    _archive(spark, shop.url, path, topics=["sums"], file_format="parquet", keep=0)
    _send(shop, pa.int8(), 8)
    _archive(spark, shop.url, path, keep=0)
    assert told not in caplog.text
    _send(shop, pa.int16(), 300)
    _archive(spark, shop.url, path, keep=0)
    assert caplog.text.count(told) == 1
    assert _whole(spark, shop, path) == [7, 8, 300]
    _archive(spark, shop.url, path)
    assert caplog.text.count(told) == 1


def test_old_days_are_archived_as_they_are_though_the_session_writes_them_in_a_legacy_way(
    spark: SparkSession, shop: Shop, tmp_path: Path
):
    path, setting = tmp_path / "lake", "spark.sql.parquet.datetimeRebaseModeInWrite"
    shop.store.create_topic("sums", schema=pa.schema([("x", pa.date32())]))
    with shop.store.producer() as producer:
        producer.send("sums", {"x": date(1, 1, 1)})
    before = str(spark.conf.get(setting))
    spark.conf.set(setting, "LEGACY")
    try:
        _archive(spark, shop.url, path, topics=["sums"], file_format="parquet", keep=0)
        assert spark.conf.get(setting) == "LEGACY"
    finally:
        spark.conf.set(setting, before)
    assert _whole(spark, shop, path) == [date(1, 1, 1)]
