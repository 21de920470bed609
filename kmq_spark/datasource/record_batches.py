"""On the executor: from a task's chunks to record batches of exactly the schema Spark expects.

Columns of stored batches are handed on without copying. What is the same in every row (topic,
partition) or follows from the row's number (offset) is made here, and small chunks are put
together: Spark's price per batch is high, a copy of a few rows is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from kmq_spark.client.constant_columns import constant
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.schema import CREATE_TIME
from kmq_spark.datasource.tasks import Slice, Task
from kmq_spark.datasource.view import View
from kmq_spark.errors import CorruptionError, InvalidRequestError
from kmq_storage.format.layout import layout_of
from kmq_storage.log.open import open_place
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.scan import Slice as StoredSlice
from kmq_storage.log.scan import moved, scan, scan_places
from kmq_storage.objects.files import Files

#: Small batches are put together up to this; Spark is fastest with tens of thousands of rows.
_BATCH_ROWS = 65_536

#: Unless their bytes are many already.
_BATCH_BYTES = 8 << 20


def read_task(url: str, task: Task, view: View) -> Iterator[pa.RecordBatch]:
    """The records of a task in order, in Spark's columns."""
    disk, _ = open_place(url, read_only=True)
    try:
        reader = ChunkReader(disk)
        pieces = (
            _spark_batch(piece, view)
            for part in task.slices
            for piece in _records(url, disk, reader, part, columns=view.arrow.names)
            if piece.batch.num_rows
        )
        for run in _gathered(pieces):
            yield run[0] if len(run) == 1 else pa.concat_batches(run)
    finally:
        disk.close()


def _records(
    url: str, disk: Files, reader: ChunkReader, part: Slice, *, columns: Sequence[str]
) -> Iterator[StoredSlice]:
    """The stored records of a slice, small batches joined; files that moved are looked up again."""
    position = part.start
    places = part.index.places(disk, part.start, part.end)
    span = (part.start, part.end)
    layout = layout_of(part.schemas, frozenset(columns))
    try:
        for piece in scan_places(
            reader,
            places,
            part.topic,
            part.partition,
            span,
            batch_rows=_BATCH_ROWS,
            layout=layout,
        ):
            yield piece
            position = piece.end
    except CorruptionError as error:
        log = open_log(url, read_only=True)
        topic = moved(log, part.index.key[0], error)
        span = (position, part.end)
        yield from scan(
            log, reader, topic, part.partition, span, batch_rows=_BATCH_ROWS, layout=layout
        )


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Consecutive batches that make one of good size together."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _BATCH_ROWS // 2 or size >= _BATCH_BYTES:
            yield waiting
            waiting, rows, size = [], 0, 0
    if waiting:
        yield waiting


def _spark_batch(part: StoredSlice, view: View) -> pa.RecordBatch:
    schema, batch, rows = view.arrow, part.batch, part.batch.num_rows
    added = "_" if view.typed else ""  # in a typed topic, other names are its own
    made: dict[str, Callable[[], pa.Array]] = {
        f"{added}topic": lambda: constant(part.topic, pa.string(), rows),
        f"{added}partition": lambda: constant(part.partition, pa.int32(), rows),
        f"{added}offset": lambda: pa.array(part.offsets()),
        f"{added}timestampType": lambda: constant(CREATE_TIME, pa.int32(), rows),
    }
    stored = batch.schema.names
    arrays = [
        made[field.name]()
        if field.name in made
        else _as_type(batch.column(field.name), field)
        if field.name in stored
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_type(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        # Mostly only the item of a list has another name in Spark than in the store.
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(
            f"column {field.name!r} holds a value that Spark's {field.type} can't: {error}",
            column=field.name,
        ) from error
