"""Making the format known to a session in which Spark's own discovery does not find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmq_spark.datasource.source import KmqDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("kmq")` known to this session; repeating it does no harm."""
    spark.dataSource.register(KmqDataSource)
