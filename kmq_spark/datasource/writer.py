"""`write` and `writeStream` with format `kmq`: tasks stage, the driver commits once.

A streaming batch is committed under its query's id and its number, so a replay of it (after a
crash between our commit and Spark's) finds itself stored and does nothing. What failed tasks
left behind, no commit names: it is invisible, and an abort has nothing to undo. An abort that
deleted files could destroy a batch whose commit did succeed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.sink import Sink, Written
from kmq_spark.datasource.sink_task import write_task
from kmq_spark.datasource.staged_output import merged
from kmq_storage.errors import IllegalStateError, OffsetOutOfRangeError
from kmq_storage.format.entries import BatchIdEntry, Entry
from kmq_storage.log.binding import DuplicateCommitError, Unit
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids

_log = logging.getLogger(__name__)

#: What Spark's streaming engine tells every task of a micro-batch.
_QUERY_ID = "sql.streaming.queryId"

Messages = Sequence[WriterCommitMessage | None]


class KmqBatchWriter(DataSourceArrowWriter):
    """Appends a DataFrame: all of it in one commit, or nothing."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return write_task(self._sink, iterator, task=_task_context().partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make everything that the tasks staged visible at once."""
        _commit(self._sink, _written(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: staged files that no commit names are invisible."""


class KmqStreamWriter(DataSourceStreamArrowWriter):
    """Appends the batches of a stream, each exactly once."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        context = _task_context()
        query = context.getLocalProperty(_QUERY_ID)
        if query is None:
            raise IllegalStateError(
                f"Spark did not tell the id of the streaming query ({_QUERY_ID}); without it a "
                "batch can't be written exactly once"
            )
        return write_task(self._sink, iterator, task=context.partitionId(), query=query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the batch visible, unless it is stored already."""
        written = _written(messages)
        queries = {each.query for each in written}
        assert len(queries) <= 1, "the tasks of a batch belong to one query"
        for query in queries:
            assert query is not None, "a stream's tasks know their query"
            _commit(self._sink, written, BatchIdEntry(query, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the commit may have succeeded, and what no commit names is invisible."""


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "tasks run on executors"
    return context


def _written(messages: Iterable[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def _commit(sink: Sink, written: Sequence[Written], batch: BatchIdEntry | None = None) -> None:
    if not any(each.staged or each.small for each in written):
        return
    log = open_log(sink.url, read_only=False)
    stager = Stager(log.disk, file_ids(log), sync=True)
    entries: list[Entry] = [] if batch is None else [batch]
    entries += [entry for each in written for entry in each.staged]
    bodies: list[pa.Buffer] = []
    for records in _small_by_partition(written):
        room = log.inline_bytes_max - sum(body.size for body in bodies)
        placed = stager.place(records, room=room)
        entries += placed.entries
        bodies += placed.bodies
    try:
        log.commit([Unit(tuple(entries), tuple(bodies))])
    except DuplicateCommitError as stored:
        _log.info("batch %s is stored already, in commit %s", batch, stored.lsn)
        # Whoever wrote it may have died before it was on disk; one that was collected was.
        with suppress(OffsetOutOfRangeError):
            log.sync(log.written_commit(stored.lsn))


def _small_by_partition(written: Iterable[Written]) -> list[PartitionRecords]:
    """One group per partition instead of one per task, in the order of the tasks."""
    runs: dict[tuple[bytes, int], list[PartitionRecords]] = {}
    for each in written:
        for records in each.small:
            runs.setdefault((records.topic_id, records.partition), []).append(records)
    return [merged(run) for run in runs.values()]
