"""Whether Spark gets to the place of an archive: it writes with Hadoop's clients, not with ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmq_spark.lake.record import FOLDER
from kmq_storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What to add to a Spark that has no clients for buckets.
_ADVICE = {
    "s3": "the jars of org.apache.hadoop:hadoop-aws, and spark.hadoop.fs.s3.impl = "
    "org.apache.hadoop.fs.s3a.S3AFileSystem with what fs.s3a.* asks for",
    "gs": "the jar of com.google.cloud.bigdataoss:gcs-connector",
}


def check_reachable(spark: SparkSession, path: str) -> None:
    """InvalidRequestError when Spark can't look into this place; nothing is written to find out."""
    from pyspark.errors import AnalysisException

    try:  # by its name: a place that is taken for a pattern may fail for its neighbours' names
        read = spark.read.option("__globPaths__", False)
        _ = read.text(f"{path}/{FOLDER}/record-00000001.json").schema
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return  # a new archive
        raise _refusal(path, error) from error
    except Exception as error:
        raise _refusal(path, error) from error


def _refusal(path: str, error: Exception) -> InvalidRequestError:
    scheme = path.partition("://")[0]
    advice = _ADVICE.get(scheme, "a file system for it, or archive into another place")
    reason = " ".join(str(error).split("\n")[:2])  # py4j begins with a line that says nothing
    return InvalidRequestError(
        f"archive {path} is out of Spark's reach ({reason}): give Spark {advice}", path=path
    )
