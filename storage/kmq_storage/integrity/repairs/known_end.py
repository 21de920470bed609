"""A damaged run of one record, the end of a queue, which the rest of its file tells.

The queue is in the list of beginnings, the timestamp in the footer. Whether the record had more is
told by the checksum of its batch: it must be that of a batch with these alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kmq_storage.errors import CorruptionError
from kmq_storage.format.message import FILE_MAGIC_BYTES
from kmq_storage.format.queue_table import Beginnings
from kmq_storage.format.records import TIMESTAMP_TYPE, decode_batch, with_light_nulls
from kmq_storage.format.segment import SealedBatch, SegmentEncoder
from kmq_storage.integrity.files.batches import schema_of
from kmq_storage.log.reading.scan import Slice
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.runs import sorted_records
from kmq_storage.model import Chunk


def known_end(
    chunks: Sequence[Chunk], beginnings: Beginnings | None, topic: Topic, partition: int
) -> Slice | None:
    """The record of a run with these batches, if it is an end that is known; else None."""
    if beginnings is None or (len(beginnings.names), len(chunks)) != (1, 1):
        return None
    (chunk,), schema = chunks, schema_of(chunks[0], topic)
    base, end, low = chunk.base_offset, chunk.end_offset, chunk.min_timestamp
    if end - base != 1:
        return None
    timestamp, nothing = pa.array([low], TIMESTAMP_TYPE), pa.nulls(1, pa.binary())
    columns = {"timestamp": timestamp, "key": beginnings.names, "value": nothing}
    found = Slice(topic.name, partition, base, pa.RecordBatch.from_pydict(columns), end)
    batch = with_light_nulls(next(sorted_records([found], schema, 1)).records)
    encoder = SegmentEncoder(schema, bytes(16), most=1, compression=topic.settings.compression)
    sealed = SealedBatch(base, end, batch, low, chunk.max_timestamp, chunk.size)
    contents = b"".join(encoder.buffers([sealed]))
    message = contents[FILE_MAGIC_BYTES + schema.serialize().size : encoder.footer_position]
    try:
        decode_batch(pa.py_buffer(message), schema, chunk.checksum, chunk.location.file)
    except CorruptionError:
        return None
    return found
