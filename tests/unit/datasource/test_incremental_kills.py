"""Finds records that a batch job loses or repeats when it is killed between any two changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from kmq_spark.datasource.incremental import incremental
from tests.spark.shop import Shop
from tests.unit.datasource.dying import killed_at
from tests.unit.datasource.spark_stand_in import SparkStandIn


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "shop")
    made.create("orders", 2)
    made.create("totals")
    yield made
    made.close()


def _copy(url: str) -> None:
    """Bring what is new from one topic to the other, as a job without a checkpoint does."""
    spark: Any = SparkStandIn()
    with incremental(cast("SparkSession", spark), url, "copier", subscribe="orders") as new:
        new.write(new.df.select("value"), topic="totals")


def test_a_batch_job_that_is_killed_at_any_step_stores_every_record_once(shop: Shop) -> None:
    batches = 0
    for step in range(1_000):
        with shop.store.producer() as producer:
            small, large = [b"%d" % batches], [b"%d" % batches * 60_000] * 3
            producer.send_batch("orders", small, partition=0).result(timeout=30)
            producer.send_batch("orders", large, partition=1).result(timeout=30)
        killed = killed_at(step, _copy, shop.url)
        _copy(shop.url)
        batches += 1
        assert shop.store.offsets("totals")[0][1] == 4 * batches, f"killed at {step}"
        if not killed:
            break
    assert 10 < batches < 1_000
    assert sorted(shop.values("totals")) == sorted(shop.values("orders"))
    assert shop.committed("copier", "orders") == {0: batches, 1: 3 * batches}
