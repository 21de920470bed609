"""Salvaging a damaged segment: every batch with a valid checksum can be kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.cutting import outside
from kmq_storage.errors import CorruptionError
from kmq_storage.format.queue_table import Beginnings
from kmq_storage.format.records import is_run
from kmq_storage.format.segment import chunks_still_named
from kmq_storage.integrity.files.batches import check_chunk
from kmq_storage.integrity.files.runs import (
    LostRows,
    beginnings_in,
    lost_rows,
    missing_of_run,
    slices_of_run,
)
from kmq_storage.integrity.files.segments import footer_of
from kmq_storage.integrity.repairs.known_end import known_end
from kmq_storage.integrity.report import Finding
from kmq_storage.integrity.second_looks import found_twice
from kmq_storage.log.proven_reads import proven
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import Slice
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Chunk, Segment
from kmq_storage.objects.files import Files
from kmq_storage.objects.mapping import brought_in


@dataclass(frozen=True, slots=True)
class Salvage:
    """What is left of a segment."""

    #: The valid batches.
    whole: list[Chunk]
    #: Offsets whose records are lost.
    missing: list[tuple[int, int]]
    #: For a run, the queues that begin anew in it; None if they can't be read.
    beginnings: Beginnings | None = field(default_factory=Beginnings.none)
    #: For a run, the rows of its damaged batches; None if unknown.
    lost: LostRows | None = None
    #: For a run of nothing but the end of a queue, that end; None if it can't be told.
    end: Slice | None = None


def salvage(files: Files, segment: Segment, topic: Topic, partition: int) -> Salvage:
    """Find the valid batches of a segment, even if its footer is damaged."""
    file = segment.location.file

    def damage_of(chunk: Chunk) -> Iterable[Finding]:
        place = chunk, topic, partition
        return found_twice(files, file, lambda: check_chunk(files.map(file), *place))

    try:
        with suppress(CorruptionError):  # only to have invalid bytes fetched again
            proven(files, file, lambda: footer_of(files.map(file), segment))
        contents = files.map(file)
    except FileNotFoundError:
        return Salvage([], [(segment.base_offset, segment.end_offset)], None)
    chunks, is_proven = _named(contents, segment)
    whole = [each for each in chunks if not any(damage_of(each))]
    lost = [each for each in chunks if each not in whole]
    if is_run(segment.columns):
        beginnings = _beginnings(contents, segment)
        if lost and (end := known_end(chunks, beginnings, topic, partition)) is not None:
            return Salvage([], [], beginnings, end=end)
        rows = lost_rows(ChunkReader(files), segment, lost) if is_proven else None
        missing = None if rows is None else rows.missing(segment)
        if missing is None:  # deleted messages count as lost, too
            missing = missing_of_run(contents, segment, whole, topic)
        return Salvage(whole, missing, beginnings, rows)
    if is_proven:
        missing = [(each.base_offset, each.end_offset) for each in lost]
    else:
        kept = ((each.base_offset, each.end_offset) for each in whole)
        missing = list(outside(kept, segment.base_offset, segment.end_offset))
    start = topic.partition(partition).start  # records below it were trimmed
    return Salvage(whole, [(max(first, start), end) for first, end in missing if end > start])


def _beginnings(contents: pa.Buffer, segment: Segment) -> Beginnings | None:
    try:
        return beginnings_in(contents, footer_of(contents, segment), segment.location.file)
    except CorruptionError:
        return None


def _named(contents: pa.Buffer, segment: Segment) -> tuple[list[Chunk], bool]:
    """The batches that the footer names, and whether the footer is valid."""
    try:
        return list(footer_of(contents, segment).chunks), True
    except CorruptionError:
        footer = brought_in(contents.slice(min(segment.location.position, contents.size)))
        return _unproven(footer, segment), False


def _unproven(footer: pa.Buffer, segment: Segment) -> list[Chunk]:
    """The batches named by a damaged footer whose offsets fit into the segment."""
    file = segment.location.file
    found: list[Chunk] = []
    position = segment.base_offset
    for chunk in chunks_still_named(footer, file, paths.segment_id(file), segment.columns):
        if position <= chunk.base_offset < chunk.end_offset <= segment.end_offset:
            found.append(chunk)
            position = chunk.end_offset
    return found


def slices_of(
    reader: ChunkReader, segment: Segment, chunks: Sequence[Chunk], topic: Topic, partition: int
) -> Iterator[Slice]:
    """The records of these batches of a segment, without trimmed ones."""
    if is_run(segment.columns) and chunks:
        yield from slices_of_run(reader, segment, chunks, topic, partition)
        return
    layout, first = topic.layout(), topic.partition(partition).start
    for chunk in chunks:
        start, end = max(chunk.base_offset, first), chunk.end_offset
        if start >= end:
            continue
        batch = reader.read(chunk, start, end, topic=topic.name, partition=partition, layout=layout)
        yield Slice(topic.name, partition, start, batch, end, layout)
