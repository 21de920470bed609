"""From stored records to record batches of exactly the schema that Spark expects.

Stored columns are handed on without copying. Columns that are the same in every row (topic,
partition) or follow from the row's number (offset) are made here. Small batches are joined: to copy
a few rows costs less than one more batch does in Spark.
"""

from __future__ import annotations

import uuid
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from kmq_spark.client.records.constant_columns import constant
from kmq_spark.client.records.fitting import fitted
from kmq_spark.datasource.columns.schema import CREATE_TIME
from kmq_spark.datasource.columns.typed_schema import exact_times
from kmq_spark.datasource.planning.view import View
from kmq_storage.log.reading.scan import Slice

if TYPE_CHECKING:
    from kmq_storage.keyed.rows import KeyedRows

#: Larger batches are cut, since a reader holds several of them.
BATCH_ROWS = 65_536

#: Batches are joined until they have so much: to copy more would cost more than another batch.
_ENOUGH_ROWS = 8_192
_ENOUGH_BYTES = 1 << 20

#: The type of properties in Spark, whose maps have one type of value.
_TEXTS = pa.map_(pa.string(), pa.string())


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches that are too small."""
    for run in _runs(batches):
        yield run[0] if len(run) == 1 else pa.concat_batches(run)


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield runs of consecutive batches that make one of good size."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _ENOUGH_ROWS or size >= _ENOUGH_BYTES:
            yield waiting
            waiting, rows, size = [], 0, 0
    if waiting:
        yield waiting


@dataclass(frozen=True)
class Origin:
    """The partition that records are of: what is the same in each of their rows."""

    topic: str
    topic_id: uuid.UUID
    partition: int


def of_log(part: Slice, origin: Origin, view: View) -> pa.RecordBatch:
    """Records of the log in Spark's columns."""
    made = {f"{view.prefix}offset": part.offset_column}
    return _of_log(part.batch, made, origin, view)


def of_queues(rows: KeyedRows, origin: Origin, view: View) -> pa.RecordBatch:
    """Records of a keyed topic in Spark's columns."""
    made = {
        "offset": lambda: pa.array(rows.offsets),
        "queue": lambda: rows.queues,
        "index": lambda: rows.indexes,
    }
    return _of_log(rows.batch, made, origin, view)


def _of_log(
    batch: pa.RecordBatch, made: dict[str, Callable[[], pa.Array]], origin: Origin, view: View
) -> pa.RecordBatch:
    prefix = view.prefix
    if f"{prefix}properties" in batch.schema.names:
        properties = batch.column(f"{prefix}properties")
        made[f"{prefix}properties"] = lambda: _properties_as_text(properties)
    return _spark_batch(batch, made, origin, view)


def of_archive(batch: pa.RecordBatch, origin: Origin, view: View) -> pa.RecordBatch:
    """Records of an archive, which has offsets and properties as they are, in Spark's columns."""
    return _spark_batch(batch, {}, origin, view)


def _exact(column: pa.Array, field: pa.Field) -> pa.Array:
    """A column in Spark's type; InvalidRequestError for a value that Spark would cut off."""
    times = exact_times(field.type)
    if times is not None:
        fitted(column, field.with_type(times))
    return fitted(column, field)


def _spark_batch(
    batch: pa.RecordBatch, more: Mapping[str, Callable[[], pa.Array]], origin: Origin, view: View
) -> pa.RecordBatch:
    schema, rows, prefix = view.arrow, batch.num_rows, view.prefix
    made: dict[str, Callable[[], pa.Array]] = {
        f"{prefix}topic": lambda: constant(origin.topic, pa.string(), rows),
        f"{prefix}topicId": lambda: constant(origin.topic_id.hex, pa.string(), rows),
        f"{prefix}partition": lambda: constant(origin.partition, pa.int32(), rows),
        f"{prefix}timestampType": lambda: constant(CREATE_TIME, pa.int32(), rows),
        **more,
    }
    stored = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = [
        made[field.name]()
        if field.name in made
        else _exact(stored[field.name], field)
        if field.name in stored
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _properties_as_text(column: pa.Array) -> pa.Array:
    """Return stored properties as map<string, string>.

    Text stays as it is, numbers are in digits, booleans are true or false, bytes are in Base64.
    """
    import pyarrow.compute as pc  # slow to import, and few need it

    values = column.items
    written = [values.field(name).cast(pa.string()) for name in ("text", "int", "float", "bool")]
    texts = pc.coalesce(*written, _base64(values.field("bytes")))
    entries = pa.StructArray.from_arrays(
        [column.keys, texts], fields=[_TEXTS.key_field, _TEXTS.item_field]
    )
    # The offsets and nulls of the maps stay as they are stored; only their entries are new.
    places = column.buffers()[:2]
    return pa.Array.from_buffers(
        _TEXTS, len(column), places, column.null_count, column.offset, [entries]
    )


def _base64(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    texts = [None if value is None else b64encode(value).decode() for value in column.to_pylist()]
    return pa.array(texts, pa.string())
