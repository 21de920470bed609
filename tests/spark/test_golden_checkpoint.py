"""Finds a version that doesn't go on where a query of a released one stood."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kmq_spark as kmq
from kmq_spark.datasource.offsets import parse_stream_offset
from tests.data.make_golden_checkpoint import OPTIONS, STORE, unique
from tests.data.make_golden_losses import END, TRIMMED, WANTED, records, trimmed_store
from tests.spark.running import Collector, load, run
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark


def test_a_query_goes_on_from_the_golden_checkpoint_with_the_batch_it_had_planned(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = shutil.copytree(STORE, tmp_path / "store")
    checkpoint = shutil.copytree(STORE.with_name("checkpoint-1"), tmp_path / "checkpoint")
    sink = Collector()
    run(spark.readStream.format("kmq").options(**OPTIONS).load(str(store)), sink, checkpoint)
    assert sink.batches == {2: [("totals", 0, n) for n in range(30, 40)]}


def test_a_query_with_state_over_all_columns_goes_on_from_the_golden_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(shutil.copytree(STORE, tmp_path / "store"))
    checkpoint = shutil.copytree(STORE.with_name("checkpoint-1-state"), tmp_path / "checkpoint")
    sent, sink = shop.send("totals", count=3), Collector()
    run(unique(load(spark, shop, subscribe="totals")), sink, checkpoint)
    assert sink.places == sent
    shop.close()


def test_a_query_goes_on_from_the_golden_checkpoint_with_the_losses_that_it_had_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = trimmed_store(tmp_path)
    checkpoint = shutil.copytree(STORE.with_name("checkpoint-1-losses"), tmp_path / "checkpoint")
    sink = Collector()
    run(records(spark, store), sink, checkpoint)
    assert sink.batches == {0: [("totals", 0, n) for n in range(TRIMMED, END)]}
    with kmq.open(store) as opened, opened.producer() as producer:
        producer.send("totals", b"new", partition=0)
    run(records(spark, store), sink, checkpoint)
    assert sink.batches[1] == [("totals", 0, END)]
    text = (checkpoint / "offsets" / "1").read_text().splitlines()[-1]
    assert parse_stream_offset(json.loads(text)).lost == TRIMMED - WANTED
