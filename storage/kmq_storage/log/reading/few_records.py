"""Reading a few of the newest, plain records of a partition without Arrow.

A waiting consumer gets most records one by one, just after their commits. The path for thousands of
rows would then take ten times as long, mostly to load its code into the processor's caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from kmq_storage.format.few_rows import PlainRows, decode_rows
from kmq_storage.format.manifest import LOG
from kmq_storage.format.records import read_batch, stored_schema
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import Slice
from kmq_storage.log.state.topic_state import Topic

_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class FewRecords:
    """A `Slice` of an untyped topic without gaps, as plain values."""

    topic: str | None
    partition: int
    offset: int
    plain: PlainRows
    end: int
    message: bytes
    columns: int

    @property
    def rows(self) -> int:
        """The number of records."""
        return self.end - self.offset

    @property
    def size(self) -> int:
        """The bytes of its columns, and some more."""
        return len(self.message)

    def offset_of(self, row: int) -> int:
        """The offset of a row; for the row after the last, the offset where reading goes on."""
        return self.offset + row

    def as_slice(self) -> Slice:
        """These records as a `Slice`."""
        schema = stored_schema(self.columns)
        batch = read_batch(pa.py_buffer(self.message), schema, self.topic or "a queue")
        return Slice(self.topic, self.partition, self.offset, batch, self.end)

    def cut(self, rows: int) -> tuple[Slice, Slice]:
        """The first rows, and the rest."""
        return self.as_slice().cut(rows)


Part: TypeAlias = Slice | FewRecords


def few_records(
    reader: ChunkReader, topic: Topic, partition: int, start: int, end: int
) -> FewRecords | None:
    """The records with offsets in [start, end); None when `scan` is needed to find them."""
    row = topic.index(partition).newest_row(start, end)
    if row is None or row.kind != LOG or row.length > _BYTES or row.rows != end - start:
        return None
    message = reader.known_bytes(row.path((topic.id, partition)), row)
    plain = None if message is None else decode_rows(message, row.columns)
    if message is None or plain is None:
        return None
    return FewRecords(topic.name, partition, start, plain, end, message, row.columns)
