"""A store of its own for each test of the data source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.shop import Shop
from tests.support.loop_disk import LoopDisk, missing_loop_disk
from tests.support.spark import CHECKPOINT_MANAGER


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A store with a topic `orders` of three partitions."""
    made = Shop(tmp_path / "shop")
    made.create("orders", 3)
    yield made
    made.close()


@pytest.fixture
def usual_checkpoints(spark: SparkSession) -> Iterator[None]:
    """Spark writes the files of checkpoints as it does by default."""
    quick = spark.conf.get(CHECKPOINT_MANAGER)
    spark.conf.unset(CHECKPOINT_MANAGER)
    yield
    spark.conf.set(CHECKPOINT_MANAGER, quick)


@pytest.fixture
def disk(tmp_path: Path, usual_checkpoints: None) -> Iterator[LoopDisk]:
    """A file system whose power can be cut; else the test is skipped, with the reason."""
    try:
        if reason := missing_loop_disk():
            pytest.skip(reason)
        (tmp_path / "loop").mkdir()
        made = LoopDisk(tmp_path / "loop", megabytes=64)
        made.mount(commit_seconds=3_600)
    except OSError as error:
        pytest.skip(str(error))
    yield made
    made.unmount(lazy=True)
