"""One Spark session per run, and what happens where there is no JVM."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
#: What spares a fourth of the JVM's work on a few rows, and changes no row: plans are interpreted,
#: not compiled for each query, and a file of a checkpoint costs two processes instead of ten, which
#: are Hadoop's calls of `readlink`. Spark as people have it runs in processes of their own: the
#: demo, the notebooks, killed drivers, the cluster, Spark Connect; the usual checkpoints also where
#: the power is cut.
_QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    CHECKPOINT_MANAGER: f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
}


def miss(reason: str) -> NoReturn:
    """Skip the test with the reason; fail it where KMQ_REQUIRE names spark."""
    if "spark" in os.environ.get("KMQ_REQUIRE", "").split(","):
        pytest.fail(f"KMQ_REQUIRE asks for spark, but {reason}")
    pytest.skip(reason)


def require_jvm() -> None:
    """Skip the test with the reason; fail it where KMQ_REQUIRE names spark."""
    from kmq_spark.cli.runtime_checks import check_java, check_library

    checks = (check_java(), check_library("pyspark", (4, 2, 0), needed_by="Spark"))
    if not (wrong := [check for check in checks if check.status != "ok"]):
        return
    reason = f"{wrong[0].name}: {wrong[0].found}. {wrong[0].advice}"
    miss(reason)


def stay_on_this_machine() -> None:
    """Have sessions of this process use this Python, and no network: for commands, not tests."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def start_session(
    warehouse: Path, delta_jars: Sequence[Path] = (), *, quick: bool = False
) -> SparkSession:
    """A session on two local cores, quiet, in UTC, with Delta where its jars are given."""
    from pyspark.sql import SparkSession

    from kmq_spark.delta_session import delta_settings

    builder = SparkSession.builder.master("local[2]").appName("kmq-tests")
    for key, value in {
        **(delta_settings(delta_jars) if delta_jars else {}),
        **(_QUICK if quick else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",  # else 50 tasks read the log of a table
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def require_delta(spark: SparkSession) -> None:
    """Skip the test where the session has no Delta; fail it where KMQ_REQUIRE names spark."""
    if "io.delta" in (spark.conf.get("spark.sql.extensions", "") or ""):
        return
    reason = "Delta's jars could not be fetched from Maven Central"
    miss(reason)
