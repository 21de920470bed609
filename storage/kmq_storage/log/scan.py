"""Scanning a partition: its record batches from an offset on, in pieces of a useful size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kmq_storage.format.joining import columns_of_all, joined
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.state import Topic
from kmq_storage.model import Chunk

#: Chunks smaller than this share of a batch are put together, larger ones stay mapped.
_SMALL_SHARE = 4
_CHUNKS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive records of one partition in the stored columns."""

    topic: str
    partition: int
    #: The offset of the first row.
    offset: int
    batch: pa.RecordBatch

    @property
    def end(self) -> int:
        """The offset after the last row."""
        return self.offset + int(self.batch.num_rows)

    def cut(self, rows: int) -> tuple[Slice, Slice]:
        """The first rows, and the rest."""
        rest = Slice(self.topic, self.partition, self.offset + rows, self.batch.slice(rows))
        return Slice(self.topic, self.partition, self.offset, self.batch.slice(0, rows)), rest


def scan(
    reader: ChunkReader, topic: Topic, partition: int, span: tuple[int, int], batch_rows: int
) -> Iterator[Slice]:
    """The records with offsets in [start, end), in slices of at most `batch_rows` rows.

    OffsetOutOfRangeError below the log's start, CorruptionError where bytes are damaged.
    """
    start, end = span
    while start < end:
        chunks = topic.chunks(partition, start, end, _CHUNKS_AT_ONCE)
        if not chunks:
            return
        yield from scan_chunks(
            reader, chunks, topic.name, partition, (start, end), batch_rows=batch_rows
        )
        start = chunks[-1].end_offset


def scan_chunks(
    reader: ChunkReader,
    chunks: Sequence[Chunk],
    topic: str,
    partition: int,
    span: tuple[int, int],
    *,
    batch_rows: int,
) -> Iterator[Slice]:
    """The records of these chunks with offsets in [start, end), as `scan` gives them."""
    gathered: list[pa.RecordBatch] = []
    gathered_rows = 0
    start = max(span[0], chunks[0].base_offset) if chunks else span[0]
    for chunk in chunks:
        batch = reader.read(chunk, *span, topic=topic, partition=partition)
        if gathered and gathered_rows + batch.num_rows > batch_rows:
            yield Slice(topic, partition, start, joined(gathered, columns_of_all(gathered)))
            start += gathered_rows
            gathered, gathered_rows = [], 0
        if not gathered and batch.num_rows * _SMALL_SHARE > batch_rows:
            for piece in _pieces(batch, batch_rows):
                yield Slice(topic, partition, start, piece)
                start += piece.num_rows
        else:
            gathered.append(batch)
            gathered_rows += batch.num_rows
    if gathered:
        yield Slice(topic, partition, start, joined(gathered, columns_of_all(gathered)))


def _pieces(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for position in range(0, batch.num_rows, rows):
        yield batch.slice(position, rows)
