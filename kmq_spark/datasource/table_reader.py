"""Option `table`: the store's own state as batch DataFrames, each as of one commit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kmq_spark.datasource.columns.tables import table_spark_schema
from kmq_spark.datasource.executor.commit_rows import CommitsTask
from kmq_spark.datasource.executor.segment_rows import SegmentsTask
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.planning.view import COLUMNS_OF_USER
from kmq_spark.datasource.tables.plan import plan_commits, plan_segments
from kmq_storage.errors import InvalidRequestError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import looking_again
from kmq_storage.log.state.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.tables.columns import COLUMNS, table_batch
from kmq_storage.tables.state_rows import ROWS

#: Rows of a small table that go to one task.
_TASK_ROWS = 100_000


@dataclass(frozen=True)
class RowsTask(InputPartition):
    """Rows of a small table: the driver makes them, and they travel in the task."""

    table: str
    message: pa.Buffer

    def batches(self, url: str) -> Iterator[pa.RecordBatch]:
        """The rows of this task."""
        yield pa.ipc.read_record_batch(self.message, COLUMNS[self.table])


TableTask = RowsTask | SegmentsTask | CommitsTask


class KmqTableReader(DataSourceReader):
    """Reads one table of the store's state as it is when the query is planned."""

    def __init__(self, url: str, table: str, wanted: StructType) -> None:
        if wanted.simpleString() != table_spark_schema(table).simpleString():
            raise InvalidRequestError(
                f"the columns of table {table!r} are fixed: leave out {COLUMNS_OF_USER}, and "
                "choose and convert columns by a SELECT"
            )
        self._url = url
        self._table = table

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of this read; Spark calls it once per load()."""
        log = open_log(self._url, read_only=True)
        return looking_again(log, lambda state: self._tasks(log, state))

    def _tasks(self, log: CommitLog, state: StoreState) -> list[InputPartition]:
        warn_of_doubtful_ends(state, state.topics.values())
        if self._table == "segments":
            return [*plan_segments(state)]
        if self._table == "commits":
            return [*plan_commits(log, state)]
        batch = table_batch(self._table, ROWS[self._table](log, state))
        return [
            RowsTask(self._table, batch.slice(start, _TASK_ROWS).serialize())
            for start in range(0, batch.num_rows, _TASK_ROWS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; where no tasks were planned, Spark makes an empty one."""
        if not isinstance(partition, TableTask):
            return iter(())
        return partition.batches(self._url)
