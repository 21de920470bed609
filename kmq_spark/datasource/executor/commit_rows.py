"""The table `commits`: executors read ranges of the commit log again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.opening import open_log
from kmq_storage.tables.commit_rows import Names, commit_batches


@dataclass(frozen=True)
class CommitsTask(InputPartition):
    """The commits with these LSNs, both included."""

    first: int
    last: int
    #: The names of the topics, by id.
    topics: Names

    def batches(self, url: str) -> Iterator[pa.RecordBatch]:
        """The rows of these commits."""
        log = open_log(url, read_only=True)
        return commit_batches(log, self.first, self.last, self.topics)
