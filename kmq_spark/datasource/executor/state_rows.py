"""A small table of the store's state: its rows were made on the driver and travel in the task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.columns.tables import table_arrow_schema


@dataclass(frozen=True)
class RowsTask(InputPartition):
    """Rows that are there already."""

    table: str
    message: pa.Buffer

    def batches(self, url: str) -> Iterator[pa.RecordBatch]:
        """The rows of this task."""
        yield pa.ipc.read_record_batch(self.message, table_arrow_schema(self.table))
