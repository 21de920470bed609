"""Segments: the footer is as the manifest says, and the rest of the file as the footer says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.records import is_run
from kmq_storage.format.segment import SegmentFooter, decode_footer
from kmq_storage.integrity.files.batches import check_chunk
from kmq_storage.integrity.files.runs import check_directory, of_run
from kmq_storage.integrity.report import Damage
from kmq_storage.log.reading.run_index import RunIndex
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Segment
from kmq_storage.objects.mapping import brought_in


def check_segment(
    contents: pa.Buffer,
    segment: Segment,
    topic: Topic,
    partition: int,
    *,
    deep: bool,
    runs: Callable[[], Sequence[RunIndex]],
) -> Iterator[Damage]:
    """Damage in the file of a segment; its record batches are read only with `deep`.

    For a run, `runs` opens all runs up to it, which tell the indexes of its messages.
    FormatVersionError when a newer kmq wrote the file, so that it can't be checked.
    """
    whole = Damage(
        segment.location.file, topic.name, partition, segment.base_offset, segment.end_offset
    )
    try:
        footer = footer_of(contents, segment)
    except FormatVersionError:
        raise
    except CorruptionError as error:
        yield replace(whole, reason=error.message)
        return
    reason = _untrue(footer, segment)
    if reason is not None:
        yield replace(whole, reason=reason)
    if not deep:
        return
    chunks = footer.chunks
    first = _first_position(footer, segment)
    if checksum(brought_in(contents.slice(0, first))) != footer.head_checksum:
        reason = "checksum of what is before the batches doesn't match"
        yield replace(whole, reason=reason)
    found = [
        (each, why) for each in chunks for why in check_chunk(contents, each, topic, partition)
    ]
    if not is_run(segment.columns):
        yield from (why for _, why in found)
        return
    if found:
        yield of_run(found[0][1], [each for each, _ in found], segment, runs)
    yield from check_directory(contents, footer, segment, whole)


def footer_of(contents: pa.Buffer, segment: Segment) -> SegmentFooter:
    """The footer of a segment; CorruptionError when it differs from the committed one."""
    file, place = segment.location.file, segment.location
    if contents.size != segment.length:
        raise CorruptionError(
            f"the file has {contents.size} bytes and should have {segment.length}", file=file
        )
    return decode_footer(
        brought_in(contents.slice(place.position, place.length)),
        file,
        paths.segment_id(file),
        columns=segment.columns,
        expected=segment.checksum,
    )


def _first_position(footer: SegmentFooter, segment: Segment) -> int:
    """Where the first batch begins, or would begin."""
    if footer.chunks:
        return footer.chunks[0].location.position
    listed = footer.directory  # which has no block without records
    return segment.location.position if listed is None else listed.position


def _untrue(footer: SegmentFooter, segment: Segment) -> str | None:
    """How a valid footer does not fit its segment; None if it does."""
    chunks = footer.chunks
    position = _first_position(footer, segment)
    offset = segment.base_offset
    for chunk in chunks:
        if chunk.location.position != position:
            return "batches don't follow each other without a gap"
        if not offset <= chunk.base_offset < chunk.end_offset <= segment.end_offset:
            return "offsets of batches don't ascend inside the segment's"
        position, offset = position + chunk.location.length, chunk.end_offset
    if footer.directory is not None:
        position = footer.end  # its blocks are looked at with the batches
    if position != segment.location.position:
        return "the footer does not begin where the batches end"
    if sum(chunk.rows for chunk in chunks) != segment.rows:
        return "the batches have other numbers of records than the segment"
    return None
