"""`spark.read.format("kmq")`: bounds and tasks on the driver, records on the executors."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kmq_spark.datasource.executor.reading import read_partition
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options.source_options import SourceOptions
from kmq_spark.datasource.planning.coverage import check_whole, cover
from kmq_spark.datasource.planning.data_loss import Losses
from kmq_spark.datasource.planning.history import history_of
from kmq_spark.datasource.planning.plan import plan
from kmq_spark.datasource.planning.start_and_end import bounds_of_batch
from kmq_spark.datasource.planning.time_bounds import Times, bounds_by_offset
from kmq_spark.datasource.planning.view import View
from kmq_storage.environment import SYSTEM
from kmq_storage.log.moving import looking_again
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.files import Files


class KmqBatchReader(DataSourceReader):
    """Reads what is in the log when the query is planned."""

    def __init__(self, options: SourceOptions, view: View) -> None:
        self._options = options
        self._view = view

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of this read; Spark calls it once per load()."""
        log = open_log(self._options.url, read_only=True)
        now = SYSTEM.now_us()  # the same for both bounds, and when it plans again
        losses = Losses(fail=self._options.fail_on_data_loss)

        def planned(state: StoreState) -> list[InputPartition]:
            history = history_of(log, state, self._options.archive)
            times = Times(ChunkReader(log.files), now, history)
            return self._tasks(state, times, losses, log.files)

        return looking_again(log, planned)

    def _tasks(
        self, state: StoreState, times: Times, losses: Losses, files: Files
    ) -> list[InputPartition]:
        options = bounds_by_offset(self._options, state, times)
        coverage = cover(state, options, times.history)
        self._view.check(list(coverage.topics.values()))
        losses.report_missing(coverage.missing)
        starts, ends = bounds_of_batch(state, options, coverage, losses)
        check_whole(state, coverage.up_to_latest(options.ending))
        ranges = coverage.ranges(starts, ends)
        return plan(ranges, losses, options.tasks, times.history, files)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task; where no tasks were planned, Spark makes an empty one."""
        return read_partition(self._options, partition, self._view)
