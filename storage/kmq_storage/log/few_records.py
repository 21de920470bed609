"""The newest records of a partition, where they are few and plain: read without Arrow.

A consumer that waits gets most records one by one, each soon after its commit. The way that is
made for thousands of rows takes ten times as long then, most of it to fetch its code from memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from kmq_storage.format.few_rows import PlainRows, decode_rows
from kmq_storage.format.manifest import LOG
from kmq_storage.format.records import read_batch, stored_schema
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.scan import Slice
from kmq_storage.log.topic_state import Topic

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
        """How many records there are."""
        return self.end - self.offset

    def offset_of(self, row: int) -> int:
        """The offset of a row; where reading goes on for the row after the last."""
        return self.offset + row

    def as_slice(self) -> Slice:
        """The same as Arrow."""
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
    """The records with offsets in [start, end); None where `scan` has to find them."""
    row = topic.index(partition).newest_row(start, end)
    if row is None or row.kind != LOG or row.length > _BYTES or row.rows != end - start:
        return None
    message = reader.known_bytes(row.path((topic.id, partition)), row)
    plain = None if message is None else decode_rows(message, row.columns)
    if message is None or plain is None:
        return None
    return FewRecords(topic.name, partition, start, plain, end, message, row.columns)
