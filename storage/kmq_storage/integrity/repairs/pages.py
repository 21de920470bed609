"""Repair of damaged pages of the manifest that no older checkpoint and log can replace.

Segments tell their topic, partition and offsets, and commits that are still in the log tell where
other records are. Offsets without records become gaps, if asked for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kmq_storage import paths
from kmq_storage.cutting import outside
from kmq_storage.environment import Environment
from kmq_storage.errors import CorruptionError
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.file_ids import begun_at, new_file_id
from kmq_storage.format.identity import Identity
from kmq_storage.format.layout_entries import SegmentEntry
from kmq_storage.format.manifest import Key, PageRef, Row, decode_page, encode_page
from kmq_storage.integrity.remains.commits import commits_left
from kmq_storage.integrity.remains.segments import FoundRows, find_segments
from kmq_storage.log.checkpoints.checkpoint import (
    Checkpoint,
    checkpoints,
    read_checkpoint,
    write_checkpoint,
)
from kmq_storage.log.index.manifest_rows import row_of_records
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.proven_reads import proven
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.objects.files import Files
from kmq_storage.objects.mapping import brought_in

_LOST = "what said where it is was lost"


@dataclass(frozen=True, slots=True)
class _Span:
    """Offsets of a partition whose rows are in one page."""

    topic: Topic
    number: int
    low: int
    high: int
    #: Whether the partition begins here.
    is_first: bool

    @property
    def key(self) -> Key:
        """The partition, by topic id and number."""
        return self.topic.id, self.number


@dataclass(slots=True)
class _Found(FoundRows):
    """The rows that were found, and what commits behind the checkpoint name."""

    #: By partition, offsets for which later commits name a segment, so that they are not lost.
    later: dict[Key, list[tuple[int, int]]] = field(default_factory=dict)


def rebuild_pages(
    files: Files, identity: Identity, environment: Environment, *, drop_damaged: bool
) -> Iterator[str]:
    """Replace damaged pages of the newest checkpoint, and write the checkpoint again.

    Yields what was done, in words. Nothing is done if offsets would be lost, unless `drop_damaged`.
    """
    began, new_uuid = files.now(), environment.new_uuid
    checkpoint = _newest(files)
    damaged = [ref for ref in checkpoint.refs if not is_whole(files, ref)] if checkpoint else []
    if checkpoint is None or not damaged:
        return
    state = checkpoint.state(files, indexed=True)
    found, lost, refs = _found_rows(files, identity, state), list[_Span](), list[PageRef]()
    for ref, following in zip(checkpoint.refs, [*checkpoint.refs[1:], None], strict=True):
        if ref in damaged:
            made, gone = _made_anew(files, state, found, (ref, following), new_uuid)
            refs += [made] if made else []
            lost += gone
        else:
            refs.append(ref)
    if lost and not drop_damaged:
        return
    state = replace(checkpoint, refs=tuple(refs)).state(files, indexed=True)
    for span in lost:
        yield _cut_out(state, span)
    write_checkpoint(files, state, checkpoint.cursor, new_uuid, began=began)
    for ref in damaged:
        yield f"{paths.page_file(ref.page_id)}: was made anew from segments and the log"


def is_whole(files: Files, ref: PageRef) -> bool:
    """Whether a page exists and is valid."""
    file = paths.page_file(ref.page_id)
    try:
        proven(files, file, lambda: decode_page(brought_in(files.map(file)), ref))
    except (CorruptionError, FileNotFoundError):
        return False
    return True


def _newest(files: Files) -> Checkpoint | None:
    for root in checkpoints(files):
        with suppress(CorruptionError, FileNotFoundError):
            return read_checkpoint(files, *root)
    return None


def _found_rows(files: Files, identity: Identity, state: StoreState) -> _Found:
    """The rows of all files that can be found and were begun before the state's checkpoint."""
    found = _Found()
    for segment in find_segments(files, identity.store_id):
        topic = state.topic_by_id(segment.topic_id)
        if topic is not None and begun_at(segment.row.file) <= state.lsn:
            row = segment.row_of(topic.layout())
            if row is not None:
                found.note_segment(segment, row)
    for commit in commits_left(files, identity):
        for entry in commit.entries:
            if isinstance(entry, RecordsEntry) and commit.lsn <= state.lsn:
                row = row_of_records(entry, commit.time, commit.file, commit.position)
                found.note((entry.topic_id, entry.partition), row)
            elif isinstance(entry, SegmentEntry) and commit.lsn > state.lsn:
                key = (entry.topic_id, entry.partition)
                found.later.setdefault(key, []).append((entry.base_offset, entry.end_offset))
    return found


def _between(found: FoundRows, span: _Span) -> list[Row]:
    """Rows of a span without overlaps; only at a partition's begin may a row reach out of it."""
    start = 0 if span.is_first else span.low
    return found.distinct(
        [
            row
            for row in found.rows.get(span.key, [])
            if start <= row.base_offset and span.low < row.end_offset <= span.high
        ]
    )


def _made_anew(
    files: Files,
    state: StoreState,
    found: _Found,
    neighbours: tuple[PageRef, PageRef | None],
    new_uuid: Callable[[], uuid.UUID],
) -> tuple[PageRef | None, list[_Span]]:
    """A page that replaces a damaged one, and the offsets without records."""
    ref, following = neighbours
    spans = sorted(_spans(state, ref, following), key=lambda span: span.key)
    rows = [(span.key, row) for span in spans for row in _between(found, span)]
    if not rows:
        return None, [lost for span in spans for lost in _missing(span, found, [])]
    page_id = new_file_id(new_uuid(), state.lsn)
    contents, made = encode_page(rows, page_id)
    is_same = (made.first, made.last, made.rows) == (ref.first, ref.last, ref.rows)
    files.stage(paths.page_file(page_id), [contents], sync=True)
    if is_same:  # the page is complete: offsets between its rows were compacted away
        return made, []
    return made, [
        lost
        for span in spans
        for lost in _missing(span, found, [row for key, row in rows if key == span.key])
    ]


def _spans(state: StoreState, ref: PageRef, following: PageRef | None) -> Iterator[_Span]:
    """The partitions in a page, with the range of offsets that the page has of each."""
    (first, low), behind = ref.first, None if following is None else following.first
    for topic in state.topics.values():
        for number, part in enumerate(topic.parts):
            key = (topic.id, number)
            begin = part.start + (topic.settings.keyed and part.start > 0 and not part.is_begun)
            first_of_all = begin
            if key == first:
                begin = max(low, begin)
            end = behind[1] if behind and key == behind[0] else part.end
            if first <= key and (behind is None or key <= behind[0]) and begin < end:
                yield _Span(topic, number, begin, end, begin == first_of_all)


def _missing(span: _Span, found: _Found, rows: Sequence[Row]) -> Iterator[_Span]:
    """The offsets of a span that are in none of these rows and in no known gap."""
    known = [(row.base_offset, row.end_offset) for row in rows]
    known += [each for each in found.later.get(span.key, []) if each[0] < span.high]
    for part in outside(known, span.low, span.high):
        for low, high in span.topic.index(span.number).outside_gaps(*part):
            yield replace(span, low=low, high=high)


def _cut_out(state: StoreState, span: _Span) -> str:
    topic = state.topics[span.topic.name]
    part = topic.parts[span.number]
    topic.index(span.number).cut_out(Gap(span.low, span.high, _LOST))
    state.cut.add(span.key)
    part.rows = max(part.rows - (span.high - span.low), 0)
    return f"{topic.name}-{span.number}: offsets {span.low} to {span.high - 1} are in no file"
