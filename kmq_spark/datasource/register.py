"""Makes the format known to a session in which Spark's own discovery does not find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmq_spark.datasource.source import KmqDataSource
from kmq_spark.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("kmq")` known to this session; a second call does nothing.

    In a thread that you started yourself, call it before the first write. Spark looks for sinks in
    Python in the thread's active session, and such a thread has none.
    """
    checked_session(spark, "dataSource").dataSource.register(KmqDataSource)
    activate(spark)


def activate(spark: SparkSession) -> None:
    """Make this session the active one of the calling thread, unless the thread has one."""
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        spark.createDataFrame([], "nothing int")  # the only public call that makes a session active


def checked_session(spark: SparkSession, needed: str) -> SparkSession:
    """InvalidRequestError for what is no session: `getActiveSession` gives None without one."""
    if not hasattr(spark, needed):
        raise InvalidRequestError(f"spark must be a SparkSession, not {spark!r}", option="spark")
    return spark
