"""Finds batch jobs that lose or repeat records: failures, kills, two at once, no checkpoint."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import DataFrame, SparkSession

import kmq_spark as kmq
from kmq_storage.errors import (
    FencedError,
    IllegalStateError,
    InvalidRequestError,
    NotFoundError,
)
from kmq_storage.format.entries import GroupEntry, GroupOffsetsEntry, RecordsEntry
from kmq_storage.log.binding.binding import Unit
from tests.spark.shop import Place, Shop

pytestmark = pytest.mark.spark

SCRIPT = """
import os, signal, sys
from pyspark.sql import SparkSession
import kmq_spark as kmq

url = sys.argv[1]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()

for is_last in (False, True):
    with kmq.incremental(spark, url, "copier", subscribe="orders", maxOffsetsPerTrigger=5) as new:
        new.write(new.df.select("key", "value"), topic="totals")
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def _places(frame: DataFrame) -> list[Place]:
    return sorted(tuple(row) for row in frame.select("topic", "partition", "offset").collect())


def test_each_record_is_in_one_batch_and_the_group_moves_on_a_clean_exit_only(
    spark: SparkSession, shop: Shop
) -> None:
    first = shop.send("orders", 0, 6)
    with kmq.incremental(spark, shop.url, "g", subscribe="orders", maxOffsetsPerTrigger=4) as new:
        later = shop.send("orders", 1, 2)
        assert _places(new.df) == first[:4]
        assert shop.committed("g", "orders") == {}
    assert shop.committed("g", "orders") == {0: 4, 1: 0, 2: 0}
    with (
        pytest.raises(ZeroDivisionError),
        kmq.incremental(spark, shop.url, "g", subscribe="orders") as new,
    ):
        assert _places(new.df) == first[4:] + later
        1 / 0  # noqa: B018
    assert shop.committed("g", "orders") == {0: 4, 1: 0, 2: 0}
    with kmq.incremental(spark, shop.url, "g", subscribe="orders") as new:
        assert _places(new.df) == first[4:] + later
    with kmq.incremental(spark, shop.url, "g", subscribe="orders") as new:
        assert _places(new.df) == []


def test_records_and_the_groups_move_are_in_one_commit(spark: SparkSession, shop: Shop) -> None:
    shop.create("totals")
    shop.send("orders", 0, 3)
    lsn = shop.lsn()
    with kmq.incremental(spark, shop.url, "g", subscribe="orders") as new:
        new.write(new.df.select("key", "value"), topic="totals")
        with pytest.raises(IllegalStateError, match="one write moves the group"):
            new.write(new.df.select("key", "value"), topic="totals")
    kinds = [{type(e) for e in commit.entries} for commit in shop.store.commits(lsn + 1)]
    assert [kind for kind in kinds if GroupOffsetsEntry in kind] == [
        {RecordsEntry, GroupOffsetsEntry}
    ]
    assert shop.values("totals") == shop.values("orders")
    shop.send("orders", 0, 1)
    with kmq.incremental(spark, shop.url, "g", subscribe="orders") as new:
        new.write(new.df.where("false").select("value"), topic="totals")
    assert shop.committed("g", "orders")[0] == 4, "what is written may be nothing"


def test_a_second_job_is_refused_and_one_taken_for_dead_writes_nothing(
    spark: SparkSession, shop: Shop
) -> None:
    shop.create("totals")
    shop.send("orders", 0, 3)
    with (
        pytest.raises(Exception, match="is in generation 2"),
        kmq.incremental(spark, shop.url, "g", subscribe="orders") as new,
    ):
        refused = kmq.incremental(spark, shop.url, "g", subscribe="orders")
        with pytest.raises(FencedError, match=r"in use since .* by a batch job"), refused:
            pass
        known = shop.store.log.refresh().groups["g"]
        other = GroupEntry("g", known.generation + 1, "other", "somebody", {})
        shop.store.log.commit([Unit((other,))])
        new.write(new.df.select("value"), topic="totals")
    assert shop.places("totals") == []
    assert shop.committed("g", "orders") == {}


def test_what_makes_no_sense_is_refused(spark: SparkSession, shop: Shop) -> None:
    with pytest.raises(
        InvalidRequestError, match="'endingOffsets': leave it out, a group is read from its offsets"
    ):
        kmq.incremental(spark, shop.url, "g", subscribe="orders", endingOffsets="latest")
    with pytest.raises(InvalidRequestError, match="'path': incremental has an argument for it"):
        kmq.incremental(spark, shop.url, "g", subscribe="orders", path="elsewhere")
    nothing = kmq.incremental(spark, shop.url, "g", subscribePattern="^nothing")
    with pytest.raises(NotFoundError, match="no topic matches"), nothing:
        pass
    assert shop.store.describe_group("g").members == []
    with pytest.raises(IllegalStateError, match="as a context manager"):
        _ = nothing.df


def test_a_pipeline_without_a_checkpoint_is_exactly_once_though_its_driver_is_killed(
    spark: SparkSession, shop: Shop
) -> None:
    # Killed at any other step: tests/unit/datasource/test_incremental_kills.py.
    shop.create("totals")
    shop.send("orders", 0, 12)
    command = [sys.executable, "-c", SCRIPT, shop.url]
    killed = subprocess.run(command, capture_output=True, timeout=240, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2_000:]
    while shop.store.describe_group("copier").lag.get("orders", {0: 1})[0]:
        with kmq.incremental(spark, shop.url, "copier", subscribe="orders") as new:
            new.write(new.df.select("key", "value"), topic="totals")
    assert shop.values("totals") == shop.values("orders")


def test_a_job_in_a_thread_of_ones_own_writes_too(spark: SparkSession, shop: Shop) -> None:
    shop.create("totals")
    shop.send("orders", 0, 3)

    def job() -> None:
        with kmq.incremental(spark, shop.url, "g", subscribe="orders") as new:
            new.write(new.df.select("value"), topic="totals")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(job).result()
    assert shop.store.describe_topic("totals").rows == 3
    assert shop.committed("g", "orders") == {0: 3, 1: 0, 2: 0}
