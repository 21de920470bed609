"""On the executor: from a task's chunks to record batches of exactly the schema Spark expects.

Columns of stored batches are handed on without copying. What is the same in every row (topic,
partition) or follows from the row's number (offset) is made here, and small chunks are put
together: Spark's price per batch is high, a copy of a few rows is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from kmq_spark.datasource.schema import CREATE_TIME, arrow_schema
from kmq_spark.datasource.tasks import Slice, Task
from kmq_storage.format.joining import columns_of_all, joined
from kmq_storage.log.reader import ChunkReader
from kmq_storage.model import Chunk
from kmq_storage.objects.open import open_disk

#: Batches below this are put together; Spark is fastest with tens of thousands of rows.
_BATCH_ROWS = 32_768

#: Unless their bytes are many already.
_BATCH_BYTES = 8 << 20


def read_task(url: str, task: Task, *, include_headers: bool) -> Iterator[pa.RecordBatch]:
    """The records of a task in order, in Spark's columns."""
    disk = open_disk(url, read_only=True)
    try:
        reader = ChunkReader(disk)
        pieces = (
            (_spark_batch(batch, part, offset, include_headers), batch.nbytes)
            for part in task.slices
            for batch, offset in _runs(reader, part)
        )
        for run in _gathered(pieces):
            yield run[0] if len(run) == 1 else pa.concat_batches(run)
    finally:
        disk.close()


def _runs(reader: ChunkReader, part: Slice) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Stored batches of a partition, small ones joined, each with the offset of its first row."""
    stored = ((_stored(reader, part, chunk), chunk.location.length) for chunk in part.chunks)
    offset = part.start
    for run in _gathered(stored):
        batch = joined(run, columns_of_all(run))
        yield batch, offset
        offset += batch.num_rows


def _stored(reader: ChunkReader, part: Slice, chunk: Chunk) -> pa.RecordBatch:
    return reader.read(chunk, part.start, part.end, topic=part.topic, partition=part.partition)


def _gathered(pieces: Iterable[tuple[pa.RecordBatch, int]]) -> Iterator[list[pa.RecordBatch]]:
    """Consecutive batches, given with their bytes, that make one of good size together."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch, length in pieces:
        waiting.append(batch)
        rows += batch.num_rows
        size += length
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield waiting
            waiting, rows, size = [], 0, 0
    if waiting:
        yield waiting


def _spark_batch(
    batch: pa.RecordBatch, part: Slice, offset: int, include_headers: bool
) -> pa.RecordBatch:
    schema = arrow_schema(include_headers=include_headers)
    rows = batch.num_rows
    made: dict[str, Callable[[], pa.Array]] = {
        "topic": lambda: _texts(part.topic, rows),
        "partition": lambda: _numbers(part.partition, rows),
        "offset": lambda: pa.array(np.arange(offset, offset + rows, dtype=np.int64)),
        "timestampType": lambda: _numbers(CREATE_TIME, rows),
    }
    stored = batch.schema.names
    arrays = [
        made[field.name]()
        if field.name in made
        else _as_type(batch.column(field.name), field.type)
        if field.name in stored
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    # The item of a list has another name in Spark than in the store; the bytes are the same.
    return column if column.type == wanted else column.cast(wanted)


def _texts(text: str, rows: int) -> pa.Array:
    return _repeated_text(text, _rounded(rows)).slice(0, rows)


def _numbers(number: int, rows: int) -> pa.Array:
    return _repeated_number(number, _rounded(rows)).slice(0, rows)


def _rounded(rows: int) -> int:
    """A power of two, so that batches of all sizes share few cached columns."""
    return 1 << max(rows - 1, 0).bit_length()


@lru_cache(maxsize=32)
def _repeated_text(text: str, rows: int) -> pa.Array:
    data = text.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data * rows)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


@lru_cache(maxsize=32)
def _repeated_number(number: int, rows: int) -> pa.Array:
    return pa.array(np.full(rows, number, dtype=np.int32))
