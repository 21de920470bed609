"""The Spark everyone is measured in: two cores, three gigabytes, nothing tuned."""

from __future__ import annotations

from pyspark.sql import SparkSession

from benchmarks.job import CORES, Job
from kmq_spark.delta_session import delta_settings


def start(job: Job) -> SparkSession:
    """A session with the peers' jars when there are any."""
    settings = {
        "spark.master": f"local[{CORES}]",
        "spark.app.name": job.case,
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.warehouse.dir": str(job.path("warehouse")),
    }
    if job.jars:
        settings |= delta_settings(job.jars)
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
