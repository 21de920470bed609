"""A driver killed while it writes to Delta; `delta_kills.py` kills as many as one likes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kmq_spark.demo import delta_jars
from tests.chaos.delta_kills import Kills
from tests.support.spark import require_delta


@pytest.mark.chaos
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_records_are_in_delta_once_though_a_driver_is_killed(
    spark: SparkSession, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    require_delta(spark)
    jars = delta_jars.fetch(pytestconfig.cache.mkdir("delta-jars"))
    storm = Kills(tmp_path, jars, random.Random(15))
    storm.kill(early=False)
    storm.drain(spark)
    assert storm.wrong(spark) == []
    storm.close()
