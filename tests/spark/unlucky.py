"""A sink some of whose tasks have bad luck, once they have written all they had to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kmq_spark.datasource.source import KmqDataSource
from kmq_spark.datasource.writer import KmqStreamWriter


def marks_of(url: str) -> Path:
    """The folder for what this has to say about a store: one of those in KMQ_TEST_MARKS."""
    return Path(os.environ["KMQ_TEST_MARKS"], "s3" if url.startswith("s3:") else "local")


class Unlucky(KmqDataSource):
    """kmq on machines that are slow and die: task 0 ends only after its speculative twin has
    written the same again, task 1 takes its executor along.

    A file `staged-TASK-ATTEMPT` says that an attempt has written everything, in `marks_of` a store.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kmq_unlucky"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer of unlucky tasks."""
        return _Writer(self._sink(schema, overwrite))


class _Writer(KmqStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = super().write(iterator)
        context = TaskContext.get()
        assert context is not None, "tasks run on executors"
        attempt = context.partitionId(), context.attemptNumber()
        folder = marks_of(self._sink.url)
        (folder / "staged-{}-{}".format(*attempt)).touch()
        if attempt == (0, 0):
            _wait_for(folder / "staged-0-1")
        if attempt == (1, 0):
            os.kill(_parent(os.getppid()), signal.SIGKILL)  # who started Python's daemon: the JVM
        return written


def _wait_for(mark: Path) -> None:
    deadline = time.monotonic() + 200
    while not mark.exists():
        assert time.monotonic() < deadline, f"{mark.name} did not come"
        time.sleep(0.02)


def _parent(process: int) -> int:
    status = Path(f"/proc/{process}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])
