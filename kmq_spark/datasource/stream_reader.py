"""`spark.readStream.format("kmq")`: the driver's side of a streaming read.

Spark calls, per micro-batch: `latestOffset(start, limit)`, where `start` is the end of the last
batch that the sink has committed; `partitions(start, end)`; and `read` on the executors. What
Spark does not do for a source is done here: the first offset is made durable inside the first
end (docs/design/spark-first-offset.md), and the group follows `start`, since Spark's own
`commit` comes a batch late and for the last batch never.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kmq_spark.datasource.group_offsets import advance_group
from kmq_spark.datasource.offsets import StreamOffset, parse_stream_offset
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options import SourceOptions
from kmq_spark.datasource.record_batches import read_task
from kmq_spark.datasource.stream_plan import log_end, next_end, ranges_between
from kmq_spark.datasource.tasks import Task, plan_tasks
from kmq_spark.datasource.view import View, plain_view
from kmq_storage.log.commit_log import CommitLog

Offset = dict[str, Any]


class KmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream exactly once per batch, restarts and replays included."""

    def __init__(self, options: SourceOptions, view: View | None = None) -> None:
        self._options = options
        self._view = view or plain_view(options)
        self._ends_at_fixed = False
        self._final: StreamOffset | None = None

    def initialOffset(self) -> Offset:
        """The open start, always the same: Spark asks twice and reads from its second answer."""
        return StreamOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What `maxOffsetsPerTrigger` allows."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on the stream ends: where, the next `latestOffset` decides.

        Not here: a batch of an earlier run may have to be replayed first.
        """
        self._ends_at_fixed = True

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Where the next batch ends; whatever is before `start` is finished and committed."""
        state = self._log().refresh()
        finished = _parsed(start)
        self._commit_to_group(finished)
        if self._ends_at_fixed and self._final is None:
            self._final = log_end(state, self._options)
        end = next_end(state, self._options, finished, limit=self._rows(limit), final=self._final)
        if end.first is not None:
            self._commit_to_group(StreamOffset(positions=end.first, ids=end.ids))
        return end.to_json()

    def _commit_to_group(self, position: StreamOffset) -> None:
        if self._options.group is not None:
            advance_group(self._log(), self._options.group, position)

    def _rows(self, limit: ReadLimit | None) -> int | None:
        limit = self.getDefaultReadLimit() if limit is None else limit
        return limit.max_rows if isinstance(limit, ReadMaxRows) else None

    def reportLatestOffset(self) -> Offset:
        """The end of the log, for the query's progress."""
        return log_end(self._log().refresh(), self._options).to_json()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of a batch, also of one that an earlier run had planned."""
        ranges = ranges_between(
            self._log().refresh(),
            _parsed(start),
            _parsed(end),
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        self._view.check([each.topic for each in ranges])
        return [*plan_tasks(ranges, self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        assert isinstance(partition, Task), "a stream's tasks are made by partitions()"
        return read_task(self._options.url, partition, self._view)

    def commit(self, end: Offset) -> None:
        """Nothing: by then `latestOffset` has moved the group already."""

    def _log(self) -> CommitLog:
        # Not kept in the reader: Spark pickles it to send it to the executors.
        return open_log(self._options.url, read_only=self._options.group is None)


def _parsed(offset: Mapping[str, Any] | None) -> StreamOffset:
    return StreamOffset() if offset is None else parse_stream_offset(offset)
