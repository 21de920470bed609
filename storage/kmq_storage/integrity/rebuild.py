"""Rebuilding a lost manifest from segments, an older checkpoint, and what is left of the log.

This is for a store whose older commits were collected. Segments tell their topic, partition and
offsets, and the commits that are left tell the rest. What only older commits told is lost: settings
of topics, group offsets, producers, and records in staged files that no commit names any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import attrgetter

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.environment import Environment
from kmq_storage.format.entries import Entry, RecordsEntry, TopicEntry
from kmq_storage.format.file_ids import begun_at
from kmq_storage.format.identity import Identity
from kmq_storage.format.layout import Layout, layout_of
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.manifest import Key, Row
from kmq_storage.integrity.found_segments import (
    FoundRows,
    FoundSegment,
    find_segments,
    named_ends,
)
from kmq_storage.integrity.log_remains import Remains, remains_of
from kmq_storage.integrity.lost_end import known_lsn
from kmq_storage.integrity.manifest_repair import is_whole_root, set_aside
from kmq_storage.integrity.page_repair import rebuild_pages
from kmq_storage.integrity.partition_ends import PartitionEnds
from kmq_storage.integrity.second_looks import whole_file
from kmq_storage.integrity.segment_holes import lost_inside
from kmq_storage.integrity.unnamed import unnamed_rows
from kmq_storage.log.checkpoint import (
    checkpoints,
    newest_checkpoint,
    write_checkpoint,
)
from kmq_storage.log.disk_errors import translated
from kmq_storage.log.hint import open_hint
from kmq_storage.log.journal import Cursor
from kmq_storage.log.locking import AppendLock, SyncLock
from kmq_storage.log.lost_ranges import rows_at_most
from kmq_storage.log.manifest import Manifest
from kmq_storage.log.offset_index import Gap, OffsetIndex
from kmq_storage.log.open import is_disk
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic, recovered_name
from kmq_storage.model import TopicSettings
from kmq_storage.names import queue_of_log
from kmq_storage.objects.files import Files

_LOST = "the manifest was lost"
_BASE = attrgetter("base_offset")
#: Above the LSN of any commit, for partitions that commits in the log name.
_IN_LOG = 1 << 64


@dataclass(slots=True)
class _Known:
    """The facts that were found about topics without a manifest, by topic id."""

    files: Files
    names: dict[bytes, str] = field(default_factory=dict)
    #: The schema versions of typed topics.
    schemas: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    #: The number of partitions.
    partitions: dict[bytes, int] = field(default_factory=dict)
    #: The highest LSN at which a file of the topic was begun.
    last: dict[bytes, int] = field(default_factory=dict)
    found: FoundRows = field(default_factory=FoundRows)
    ends: PartitionEnds = field(default_factory=PartitionEnds)
    #: The number of partitions in an older checkpoint.
    older: dict[bytes, int] = field(default_factory=dict)
    #: The partitions with new gaps.
    cut: set[Key] = field(default_factory=set)

    def is_older(self, key: Key) -> bool:
        """Whether an older checkpoint has this partition."""
        return key[1] < self.older.get(key[0], 0)

    def note_schemas(self, topic_id: bytes, schemas: Iterable[str]) -> None:
        """Note schema versions of a topic; versions are only added, so the longest list counts."""
        self.schemas[topic_id] = max(self.schemas.get(topic_id, ()), tuple(schemas), key=len)

    def layout(self, topic_id: bytes) -> Layout:
        """The layout for reading a topic's records."""
        return layout_of(self.schemas.get(topic_id, ()))

    def note_partition(self, topic_id: bytes, number: int, lsn: int = _IN_LOG) -> None:
        """Note that there is a partition with this number, with a file begun at this LSN."""
        self.partitions[topic_id] = max(self.partitions.get(topic_id, 0), number + 1)
        self.last[topic_id] = max(self.last.get(topic_id, 0), lsn)

    def newest_first(self) -> list[bytes]:
        """The topics, so that of several with one name the latest comes first and keeps it."""
        return sorted(self.partitions, key=self.last.__getitem__, reverse=True)

    def note_topic(self, entry: TopicEntry) -> None:
        """Note a definition of a topic.

        It may create or change the topic, so its partitions may be older than the log. A queue's
        own log is only ever created, so it has none before this definition.
        """
        self.names.setdefault(entry.topic_id, entry.name)
        self.note_schemas(entry.topic_id, entry.settings.get("schemas", ()))
        if entry.partitions and queue_of_log(entry.name) is None:
            self.note_partition(entry.topic_id, entry.partitions - 1)


def rebuild(files: Files, identity: Identity, environment: Environment) -> list[str]:
    """Write a checkpoint of what can be found before the log's first commit; what was done."""
    with translated(files.url), files.afresh(), _told_to_handles(files, identity, environment):
        return _rebuilt(files, identity, environment)


@contextmanager
def _told_to_handles(files: Files, identity: Identity, environment: Environment) -> Iterator[None]:
    """Make writers of a store on a disk begin anew, before and after the block.

    In a bucket this is not needed: a handle keeps its own state, which knows more.
    """
    if not is_disk(files):
        yield
        return
    hint = open_hint(files, identity.seed, environment)
    with SyncLock(files, environment), AppendLock(files, hint, environment):
        hint.count_loss(hint.mark)  # also before, as the process may die after the checkpoint
        yield
        hint.count_loss(hint.mark)


def _rebuilt(files: Files, identity: Identity, environment: Environment) -> list[str]:
    began = files.now()
    pages = list(rebuild_pages(files, identity, environment, drop_damaged=True))
    if pages:
        _set_damaged_aside(files)  # else checkpoints without their pages stay the newest
    found = newest_checkpoint(files)
    state = StoreState(Manifest(files, ())) if found is None else found.state(files, indexed=True)
    left = remains_of(files, identity, known_lsn(files), state.lsn)
    told = pages + list(_up_to(left, state, files, identity))
    for commit in left.marked:  # no reader will read them, as they are before the new checkpoint
        place = {"file": commit.file, "position": commit.position}
        state.apply(commit.lsn, commit.time, commit.entries, **place)
    end = Cursor(state.lsn, None, state.time, state.lsn + 1, 0)
    _set_damaged_aside(files)
    write_checkpoint(files, state, end, environment.new_uuid, began=began)
    return [*told, f"a manifest was made from segments; the log goes on at commit {end.lsn + 1}"]


def _set_damaged_aside(files: Files) -> None:
    """Free the names of damaged checkpoints, as the same checkpoint may be written again."""
    for root in checkpoints(files):
        if not is_whole_root(files, *root):
            set_aside(files, paths.checkpoint_file(*root))


def _up_to(left: Remains, state: StoreState, files: Files, identity: Identity) -> Iterator[str]:
    """Bring the state up to the first commit that is left, as far as segments tell."""
    if left.marked and left.before == state.lsn:
        return  # these commits tell everything
    known, segments = _Known(files, cut=state.cut), list(find_segments(files, identity.store_id))
    for segment in segments:
        known.names[segment.topic_id] = segment.topic
        known.note_partition(segment.topic_id, segment.partition, begun_at(segment.row.file))
        known.note_schemas(segment.topic_id, segment.schemas)
    for key, at_least in named_ends(files, identity.store_id):
        known.ends.note_end(key, at_least)
    _note_entries(left.entries, known)
    yield from _note_rows(known, segments)
    known.older = {topic.id: topic.partitions for topic in state.topics.values()}
    for topic_id in known.newest_first():
        topic = state.topic_by_id(topic_id) or _added(state, topic_id, known)
        if topic_id not in known.older:
            yield f"topic {topic.name}: it has default settings again, unless the log says others"
        topic.enlarge(known.partitions[topic_id])
        for number in range(topic.partitions):
            yield from _lay_out(topic, number, known)
    staged = unnamed_rows(files, state)
    for topic in state.topics.values():
        inline = rows_at_most(left.before - state.lsn)
        yield from _doubt_ends(topic, known, staged, inline)
    state.lsn = left.before


def _note_rows(known: _Known, segments: Iterable[FoundSegment]) -> Iterator[str]:
    for segment in segments:
        row = segment.row_of(known.layout(segment.topic_id))
        if row is None:
            yield (
                f"topic {segment.topic}: a segment of partition {segment.partition} at offset "
                f"{segment.row.base_offset} was left out, nothing tells the schema it was written "
                "under; put a checkpoint back from a copy"
            )
        else:
            known.found.note_segment(segment, row)


def _note_entries(entries: Iterable[Entry], known: _Known) -> None:
    """Note what the commits that are left tell of topics, and where their records begin."""
    for entry in entries:
        known.ends.note(entry)
        if isinstance(entry, RecordsEntry | SegmentEntry | TrimEntry | GapEntry):
            known.note_partition(entry.topic_id, entry.partition)
        elif isinstance(entry, TopicEntry):
            known.note_topic(entry)


def _doubt_ends(
    topic: Topic, known: _Known, staged: Mapping[Key, int], inline: int
) -> Iterator[str]:
    """Let no partition end before its real end; if that is unknown, behind all possible offsets."""
    for number, part in enumerate(topic.parts):
        key = (topic.id, number)
        end = known.ends.logged.get(key)
        if end is None:
            end = max(part.end, known.ends.at_least.get(key, 0)) + inline + staged.get(key, 0)
        if part.end or known.is_older(key):
            yield from _pass_over(topic, number, known, end)
        elif end:  # all that it had was given up long ago, or it had nothing
            part.start = part.end = end
            yield _before(topic, number, end)


def _before(topic: Topic, number: int, start: int) -> str:
    return f"{topic.name}-{number}: begins at offset {start}; before it all was trimmed, or is lost"


def _added(state: StoreState, topic_id: bytes, known: _Known) -> Topic:
    """Add a topic that no checkpoint has, as far as segments tell."""
    topic = Topic(topic_id, _name_of(state, topic_id, known), state.manifest)
    found = [row for key, rows in known.found.rows.items() for row in rows if key[0] == topic_id]
    keyed = any(row.in_run for row in found)
    trims = any(row.file in known.found.begun for row in found)
    schemas = known.schemas.get(topic_id, ())
    topic.settings = TopicSettings(keyed=keyed, trims=trims, schemas=schemas)
    topic.columns = known.layout(topic_id).sealed_columns  # any record may be a tombstone
    state.add_topic(topic)
    return topic


def _name_of(state: StoreState, topic_id: bytes, known: _Known) -> str:
    """The name of a topic, or a made-up one if another topic has its name.

    A queue's own log gets a made-up name, because its queue is lost and may be created again.
    """
    name = known.names.get(topic_id)
    if name is None or name in state.topics or queue_of_log(name) is not None:
        return recovered_name(topic_id)
    return name


def _lay_out(topic: Topic, number: int, known: _Known) -> Iterator[str]:
    """Add found rows to a partition behind its known ones, up to where the log goes on."""
    part, key = topic.parts[number], (topic.id, number)
    rows, later = _told_apart(topic, number, known)
    if (rows or later) and not known.is_older(key):
        first = min(rows + later, key=_BASE)
        part.end, part.start = first.base_offset, _start(topic, first, known)
        begins = part.start > 0 or first.file in known.found.begun
        part.is_begun = topic.settings.trims and begins
        if part.start:
            yield _before(topic, number, part.start)
    for row in rows:
        yield from _put(topic, number, known, row)
    if later:  # commits in the log name these, and cover their offsets once they are read
        yield from _pass_over(topic, number, known, later[0].base_offset)
        _count_later(topic, number, later[0], known.ends.logged[key])
        part.end = known.ends.logged[key]
    yield from _cut_where_segments_begin(topic, number, known)
    yield from _holes(topic, number, known, [*rows, *later])


def _cut_where_segments_begin(topic: Topic, number: int, known: _Known) -> Iterator[str]:
    """Cut a row where a segment named in the log begins within it.

    The segment's writer knew of a trim or gap before its begin, so earlier records are not valid.
    """
    part, index = topic.parts[number], topic.index(number)
    for at in known.ends.begins((topic.id, number)):
        row = next(index.rows(at - 1, at), None) if part.start < at < part.end else None
        if row is None or row.end_offset <= at or row.in_run:
            continue
        (rows, size), (left_rows, left_size) = row.held_from(part.start), row.held_from(at)
        part.drop(rows - left_rows, size - left_size)
        known.cut.add((topic.id, number))
        if row.base_offset <= part.start:
            part.start = at
            index.drop_before(at)
            yield _before(topic, number, at)
        else:
            index.cut_out(Gap(row.base_offset, at, _LOST))
            yield f"{topic.name}-{number}: offsets {row.base_offset} to {at - 1} stand nowhere"


def _told_apart(topic: Topic, number: int, known: _Known) -> tuple[list[Row], list[Row]]:
    """The found rows that end before the log's records, and those that reach into them."""
    key, index, since = (topic.id, number), topic.index(number), topic.parts[number].end
    found = [row for row in known.found.rows.get(key, ()) if row.end_offset > since]
    found = [row for row in found if _fits(index, row, since)]
    logged = known.ends.logged.get(key)
    if logged is None:
        return known.found.distinct(found), []
    later = [row for row in found if row.base_offset < logged < row.end_offset]
    found = [row for row in found if row.end_offset <= logged]
    return known.found.distinct(found), sorted(later, key=_BASE)


def _fits(index: OffsetIndex, row: Row, since: int) -> bool:
    """Whether a row begins behind the known rows, or exactly where one of them begins."""
    at = row.base_offset
    return at >= since or all(known.base_offset >= at for known in index.rows(at, at + 1))


def _put(topic: Topic, number: int, known: _Known, row: Row) -> Iterator[str]:
    """Add a row; it replaces the known rows that it overlaps."""
    yield from _pass_over(topic, number, known, row.base_offset)
    part, index = topic.parts[number], topic.index(number)
    part.rows, part.size = part.rows + row.rows, part.size + row.size
    if row.base_offset < part.end:
        for each in list(index.rows(row.base_offset, part.end)):
            part.rows, part.size = part.rows - each.rows, part.size - each.size
        index.replace(row)
    else:
        index.append(row)
    part.end = row.end_offset


def _pass_over(topic: Topic, number: int, known: _Known, base: int) -> Iterator[str]:
    """Add a gap from the end of a partition up to an offset."""
    part = topic.parts[number]
    if part.end < base:
        topic.index(number).cut_out(Gap(part.end, base, _LOST))
        known.cut.add((topic.id, number))
        yield f"{topic.name}-{number}: offsets {part.end} to {base - 1} stand nowhere"
        part.end = base


def _count_later(topic: Topic, number: int, later: Row, end: int) -> None:
    """Count the records before the log in a segment that reaches into it."""
    part = topic.parts[number]
    known = list(topic.index(number).rows(later.base_offset, part.end))
    behind_rows, behind_size = later.held_from(end)
    part.rows += max(later.rows - behind_rows - sum(each.rows for each in known), 0)
    part.size += max(later.size - behind_size - sum(each.size for each in known), 0)


def _start(topic: Topic, first: Row, known: _Known) -> int:
    """The start of a partition; in a keyed topic, an offset without a record, unless it is 0."""
    start, is_begun = first.base_offset, first.file in known.found.begun
    return start - 1 if topic.settings.keyed and start and not is_begun else start


def _holes(topic: Topic, number: int, known: _Known, rows: list[Row]) -> Iterator[str]:
    """Add gaps for offsets without records within segments, unless compaction may explain them."""
    end = topic.parts[number].end
    for row in rows:
        missing = row.end_offset - row.base_offset - row.rows
        lost = _lost_inside(known.files, topic, number, row) if missing > 0 else []
        for start, behind in lost:
            if start < end:
                topic.index(number).gaps.append(Gap(start, min(behind, end), _LOST))
                yield f"{topic.name}-{number}: offsets {start} to {behind - 1} stand nowhere"
        if missing > 0 and not lost:
            yield (
                f"{topic.name}-{number}: of offsets {row.base_offset} to {row.end_offset - 1} a "
                f"segment has no record for {missing}; compaction left them out, or an earlier "
                "repair gave them up: readers are not told of them any more"
            )


def _lost_inside(files: Files, topic: Topic, number: int, row: Row) -> list[tuple[int, int]]:
    """Lost offsets within a row; empty for a run, which does not tell, and an unreadable file.

    Unreadable records are cut out later.
    """
    contents = None if row.in_run else whole_file(files, row.path((topic.id, number)))
    with suppress(pa.ArrowException, OSError):
        return [] if contents is None else lost_inside(contents, row)
    return []
