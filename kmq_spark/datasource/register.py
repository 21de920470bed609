"""Making the format known to a session in which Spark's own discovery does not find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmq_spark.datasource.source import KmqDataSource
from kmq_spark.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("kmq")` known to this session; repeating it does no harm."""
    checked_session(spark, "dataSource").dataSource.register(KmqDataSource)


def checked_session(spark: SparkSession, needed: str) -> SparkSession:
    """InvalidRequestError for what is no session: `getActiveSession` gives None without one."""
    if not hasattr(spark, needed):
        raise InvalidRequestError(f"spark must be a SparkSession, not {spark!r}", option="spark")
    return spark
