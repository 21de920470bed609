"""Checks that record batches match what commits and footers say about them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError
from kmq_storage.format.plain_columns import numbers_of
from kmq_storage.format.records import decode_batch, is_run, offsets_of, timestamp_bounds
from kmq_storage.integrity.report import Damage
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Chunk
from kmq_storage.objects.mapping import brought_in


def stored_batch(contents: pa.Buffer, chunk: Chunk, topic: Topic) -> pa.RecordBatch:
    """The stored batch of a chunk; CorruptionError when its bytes changed."""
    location = chunk.location
    if location.position + location.length > contents.size:
        raise CorruptionError("the file is shorter than its commit says")
    message = brought_in(contents.slice(location.position, location.length))
    return decode_batch(message, schema_of(chunk, topic), chunk.checksum, f"topic {topic.name}")


def schema_of(chunk: Chunk, topic: Topic) -> pa.Schema:
    """The schema of the stored batch of a chunk."""
    return topic.layout().stored(chunk.columns, chunk.location.file)


def damaged(chunk: Chunk, topic: Topic, partition: int, reason: str) -> Damage:
    """The finding that the records of a chunk are damaged."""
    file = chunk.location.file
    return Damage(file, topic.name, partition, chunk.base_offset, chunk.end_offset, reason)


def check_chunk(
    contents: pa.Buffer, chunk: Chunk, topic: Topic, partition: int
) -> Iterator[Damage]:
    """What is wrong with the record batch of a chunk."""
    try:
        batch = stored_batch(contents, chunk, topic)
    except CorruptionError as error:
        yield damaged(chunk, topic, partition, error.message)
        return
    reason = _differs(batch, chunk)
    if reason is not None:
        yield damaged(chunk, topic, partition, reason)


def _differs(batch: pa.RecordBatch, chunk: Chunk) -> str | None:
    """How an intact batch differs from what its chunk says; None if it doesn't."""
    if batch.num_rows != chunk.rows:
        return f"{batch.num_rows} records are where {chunk.rows} should be"
    if batch.num_rows and timestamp_bounds(batch) != (chunk.min_timestamp, chunk.max_timestamp):
        return "timestamps are outside the bounds that are said of them"
    offsets = offsets_of(batch)
    in_order = not is_run(chunk.columns)
    if in_order and offsets is not None and not _are_inside(numbers_of(offsets), chunk):
        return "offsets are not those that are said of them"
    return None


def _are_inside(offsets: Numbers, chunk: Chunk) -> bool:
    if len(offsets) == 0:
        return True
    inside = offsets[0] >= chunk.base_offset and offsets[-1] < chunk.end_offset
    return bool(inside and (np.diff(offsets) > 0).all())
