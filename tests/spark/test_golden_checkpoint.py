"""Finds a version that doesn't go on where a query of a released one stood."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.data.make_golden_checkpoint import OPTIONS, STORE, unique
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
