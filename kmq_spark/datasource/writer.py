"""`write` and `writeStream` with format `kmq`: tasks stage rows, the driver commits once.

A streaming batch is committed under its target, its query's id and its number. A replay (after a
crash between kmq's commit and Spark's) finds the batch stored and does nothing. What failed tasks
staged is named by no commit and so invisible: an abort has nothing to undo. An abort that deleted
files could destroy a batch whose commit did succeed.

For each batch the driver makes a writer, and commits, in a new process, and waits for it. So what
only tasks need is imported by tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.sink.sink import Sink, Written
from kmq_spark.datasource.spark_versions import ArrowStreamWriter
from kmq_storage.errors import IllegalStateError

#: Local properties that Spark's streaming engine gives to every task of a micro-batch.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

#: A session's setting, which tasks see, too: the checkpoints of queries that name no folder for
#: theirs are below it.
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


class KmqBatchWriter(DataSourceArrowWriter):
    """Appends a DataFrame: all of it in one commit, or nothing."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        from kmq_spark.datasource.executor.writing import write_task
        from kmq_storage.format.murmur2 import murmur2_of

        # Not the LSN itself: in a job that makes two commits per run, it is always even or always
        # odd, and would lead to the same one of two partitions.
        number = murmur2_of(b"%d" % self._sink.lsn)
        return write_task(self._sink, iterator, task=_task_context().partitionId(), number=number)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make everything that the tasks staged visible at once."""
        from kmq_spark.datasource.sink.commit import commit_written, warn_of_skipped_write

        sink, is_new = self._sink, not self._sink.stored
        if is_new:
            log = open_log(sink.url, read_only=False)
            is_new = commit_written(log, _written(messages), sink.batch, also=sink.move)
        if sink.batch is not None and not is_new:
            warn_of_skipped_write(sink.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: staged files that no commit names are invisible."""


class KmqStreamWriter(ArrowStreamWriter):
    """Appends the batches of a stream, each exactly once."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        from kmq_spark.datasource.executor.writing import write_task

        context = _task_context()
        query = context.getLocalProperty(_QUERY_ID)
        if query is None:
            raise IllegalStateError(
                f"Spark did not tell the id of the streaming query ({_QUERY_ID}); without it a "
                "batch can't be written exactly once"
            )
        task, number = context.partitionId(), int(context.getLocalProperty(_BATCH_ID) or 0)
        written = write_task(self._sink, iterator, task=task, number=number, query=query)
        if self._sink.checkpoint is not None:
            return written
        return replace(written, checkpoint=context.getLocalProperty(_CHECKPOINTS))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the batch visible, unless it is stored already."""
        from kmq_spark.datasource.sink.checkpoint import sync_checkpoint
        from kmq_spark.datasource.sink.commit import commit_written, warn_of_old_batch

        written = _written(messages)
        queries = {each.query for each in written}
        assert len(queries) <= 1, "the tasks of a batch belong to one query"
        if any(each.staged or each.small for each in written):  # an empty batch needs no commit
            (query,) = queries
            assert query is not None, "a stream's tasks know their query"
            checkpoint = self._sink.checkpoint or written[0].checkpoint
            if checkpoint is not None:
                sync_checkpoint(checkpoint)
            log = open_log(self._sink.url, read_only=False)
            batch = self._sink.counted(query, batchId)
            if not commit_written(log, written, batch):
                warn_of_old_batch(log, batch)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the commit may have succeeded, and what no commit names is invisible."""


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "tasks run on executors"
    return context


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Return what the tasks wrote; a missing message is an error, else its rows would be lost."""
    written = [message for message in messages if isinstance(message, Written)]
    assert len(written) == len(messages), "Spark commits what all tasks have written"
    return written
