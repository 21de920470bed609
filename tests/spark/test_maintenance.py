"""Finds a Spark job that leaves partitions unsealed, or that changes what is read."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

import kmq_spark as kmq
from kmq_spark import maintenance
from kmq_spark.datasource.store_url import StoreUrl
from tests.spark.shop import Shop
from tests.support.s3 import S3Server

pytestmark = pytest.mark.spark


def _rows(spark: SparkSession, shop: Shop) -> list[Row]:
    reader = spark.read.format("kmq").option("subscribe", "parts")
    return sorted(reader.load(shop.url).select("partition", "offset", "key", "value").collect())


def test_executors_seal_every_partition_and_readers_see_the_same(spark: SparkSession, shop: Shop):
    shop.create("parts", 3)
    for partition in range(3):
        for _ in range(4):
            shop.send("parts", partition, 10)
    before = _rows(spark, shop)
    report = maintenance.maintain(spark, shop.url, seal_after=0.0, grace=0.0)
    assert (report.sealed.segments, report.sealed.rows) == (3, 120)
    assert report.sealed.conflicts == 0
    assert report.checkpoint.pages == 1
    assert shop.store.stats().files["segments"] == 3
    assert _rows(spark, shop) == before


def test_a_second_job_finds_nothing_to_do(spark: SparkSession, shop: Shop):
    shop.create("parts", 1)
    shop.send("parts", 0, 10)
    maintenance.maintain(spark, shop.url, seal_after=0.0)
    again = maintenance.maintain(spark, shop.url, seal_after=0.0)
    assert (again.sealed.segments, again.compacted.after, again.trimmed.rows) == (0, 0, 0)


def test_a_task_opens_the_store_once_for_many_partitions(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    shop.create("parts", 5)
    for partition in range(5):
        shop.send("parts", partition, 10)
    monkeypatch.setattr(maintenance, "_TASKS", 2)
    spark.sparkContext.setJobGroup("maintenance", "of a few tasks")
    report = maintenance.maintain(spark, shop.url, seal_after=0.0)
    assert (report.sealed.segments, report.sealed.rows) == (5, 50)
    tracker = spark.sparkContext.statusTracker()
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup("maintenance")))
    stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
    assert [stage.numTasks for stage in stages if stage] == [2]


def test_credentials_that_only_the_call_has_reach_executors_and_show_nowhere(
    spark: SparkSession, moto: S3Server, caplog: pytest.LogCaptureFixture
):
    url, options = moto.new_url(), moto.options()
    caplog.set_level(logging.DEBUG)
    with kmq.open(url, storage_options=options, maintenance=False) as store:
        store.create_topic("parts", partitions=2)
        with store.producer() as producer:
            for number in range(20):
                producer.send("parts", b"v", partition=number % 2)
        report = maintenance.maintain(spark, url, seal_after=0.0, storage_options=options)
        assert (report.sealed.segments, report.sealed.rows) == (2, 20)
        assert store.stats().files["segments"] == 2
    with pytest.raises(kmq.KmqError) as refused:
        wrong = {**options, "endpoint": "http://127.0.0.1:9"}
        maintenance.maintain(spark, url, seal_after=0.0, storage_options=wrong)
    shown = [repr(StoreUrl(url, options)), repr(refused.value), caplog.text]
    assert not any(options["secret_access_key"] in text for text in shown)


def test_damage_in_one_partition_is_named_when_all_others_are_done(spark: SparkSession, shop: Shop):
    shop.create("parts", 3)
    values = [b"%d" % n * 300_000 for n in range(3)]
    with shop.store.producer() as producer:
        for partition, value in enumerate(values):
            producer.send_batch("parts", [value] * 4, partition=partition).result(30)
    for file in Path(shop.url).glob("staged/*"):
        contents = bytearray(file.read_bytes())
        if values[1][:100] in contents:
            contents[contents.index(values[1])] ^= 1
            file.write_bytes(contents)
    with pytest.raises(kmq.CorruptionError, match=r"parts-1, offsets 0 to 3"):
        maintenance.maintain(spark, shop.url, seal_after=0.0)
    files = shop.store.stats().files
    assert (files["segments"], files["checkpoints"]) == (2, 1)
