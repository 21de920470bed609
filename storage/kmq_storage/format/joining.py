"""Concatenate stored record batches, of which some may lack optional columns of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from kmq_storage.format.records import OFFSET, columns_of, is_typed, stored_schema
from kmq_storage.format.typed import is_own, typed_schema


def columns_of_all(batches: Iterable[pa.RecordBatch]) -> int:
    """The optional columns that at least one of the batches has."""
    columns = 0
    for batch in batches:
        columns |= columns_of(batch.schema)
    return columns


def joined(batches: Sequence[pa.RecordBatch], columns: int) -> pa.RecordBatch:
    """The rows of all batches, with these optional columns; a single batch is not copied.

    Batches of a typed topic have the same own columns (`Layout.current`).
    """
    schema = _joint_schema(batches[0].schema, columns)
    widened = [_widened(batch, schema) for batch in batches]
    return widened[0] if len(widened) == 1 else pa.concat_batches(widened)


def _joint_schema(first: pa.Schema, columns: int) -> pa.Schema:
    if not is_typed(first):
        return stored_schema(columns)
    own = [field for field in first if is_own(field.name)]
    return typed_schema(own, columns & ~OFFSET)


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    names = batch.schema.names
    if len(names) == len(schema):
        return batch
    arrays = [
        batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
