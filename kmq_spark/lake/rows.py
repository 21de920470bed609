"""Reads rows from the Parquet files of an archive, one record batch at a time.

A row group is never decoded as a whole: Spark makes them of up to 128 MiB, packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from kmq_spark.client.records.fitting import fitted
from kmq_spark.lake.files import ArchivedFile, group_of, opened
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import ArchiveRecord

#: The most rows of a record batch from a file, and about how many bytes.
BATCH_ROWS = 65_536
_BATCH_BYTES = 4 << 20


def rows_of(
    place: ArchivePlace,
    record: ArchiveRecord,
    file: ArchivedFile,
    schema: pa.Schema,
    *,
    where: Callable[[ArchivedFile], bool],
    which: Callable[[pa.RecordBatch], pa.BooleanArray],
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of a file, with the columns of a schema; missing columns are null.

    `where` says which row groups may hold such rows; `which` decides for each row, by its place and
    time.
    """
    chosen_by = _chosen_by(record)
    with opened(place, file.path) as parquet:
        wanted = {*chosen_by.names, *schema.names}
        there = [name for name in parquet.schema_arrow.names if name in wanted]
        for number in range(parquet.num_row_groups):
            group = group_of(file, parquet.metadata, number, record.prefix)
            if where(group):
                for batch in parquet.iter_batches(_rows_at_once(group), [number], there):
                    mask = which(_with_columns(batch, chosen_by))
                    yield _with_columns(_filterable(batch, schema).filter(mask), schema)


def _rows_at_once(file: ArchivedFile) -> int:
    weight = -(-file.bytes // max(file.rows, 1))
    return min(max(_BATCH_BYTES // max(weight, 1), 1), BATCH_ROWS)


def _filterable(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema that are there; views, which delta-rs writes, can't be filtered."""
    fields = [field for field in schema if field.name in batch.schema.names]
    columns = [
        fitted(column, field) if "_view" in str(column.type) else column
        for field in fields
        for column in [batch.column(field.name)]
    ]
    return pa.RecordBatch.from_arrays(columns, [field.name for field in fields])


def _with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    there = batch.schema.names
    columns = [
        fitted(batch.column(field.name), field)
        if field.name in there
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _chosen_by(record: ArchiveRecord) -> pa.Schema:
    """The columns by which rows are chosen."""
    kinds = {
        "topicId": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    return pa.schema([(record.column(name), kind) for name, kind in kinds.items()])
