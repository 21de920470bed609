"""Rebuilding a lost manifest from segments, an older checkpoint, and what is left of the log.

This is for a store whose older commits were collected. Segments tell their topic, partition and
offsets, and the commits that are left tell the rest. What only older commits told is lost: settings
of topics, group offsets, producers, and records in staged files that no commit names any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kmq_storage import paths
from kmq_storage.environment import Environment
from kmq_storage.format.identity import Identity
from kmq_storage.integrity.remains.commits import Remains, remains_of
from kmq_storage.integrity.remains.lost_end import known_lsn
from kmq_storage.integrity.remains.segments import find_segments, named_ends
from kmq_storage.integrity.remains.topics import KnownTopics
from kmq_storage.integrity.remains.unnamed_staged import unnamed_rows
from kmq_storage.integrity.repairs.manifest import is_whole_root, set_aside
from kmq_storage.integrity.repairs.pages import rebuild_pages
from kmq_storage.integrity.repairs.rebuilt_partition import RebuiltPartition
from kmq_storage.log.checkpoints.checkpoint import checkpoints, newest_checkpoint, write_checkpoint
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk_errors import translated
from kmq_storage.log.files.hint import open_hint
from kmq_storage.log.files.locking import AppendLock, SyncLock
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.open import is_disk
from kmq_storage.log.state.lost_ranges import rows_at_most
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic, recovered_name
from kmq_storage.model import TopicSettings
from kmq_storage.names import queue_of_log
from kmq_storage.objects.files import Files


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
    told = pages + _up_to(left, state, files, identity)
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


def _up_to(left: Remains, state: StoreState, files: Files, identity: Identity) -> list[str]:
    """Bring the state up to the first commit that is left, as far as segments tell."""
    told: list[str] = []
    if left.marked and left.before == state.lsn:
        return told  # these commits tell everything
    known = _found(files, identity, left, told.append)
    known.cut = state.cut
    known.older = {topic.id: topic.partitions for topic in state.topics.values()}
    for topic_id in known.newest_first():
        topic = state.topic_by_id(topic_id) or _added(state, topic_id, known)
        if topic_id not in known.older:
            told.append(
                f"topic {topic.name}: it has default settings again, unless the log says others"
            )
        topic.enlarge(known.partitions[topic_id])
        for number in range(topic.partitions):
            RebuiltPartition(topic, number, known, told.append).lay_out(files)
    staged, inline = unnamed_rows(files, state), rows_at_most(left.before - state.lsn)
    for topic in state.topics.values():
        for number in range(topic.partitions):
            part = RebuiltPartition(topic, number, known, told.append)
            part.doubt_end(staged.get((topic.id, number), 0), inline)
    state.lsn = left.before
    return told


def _found(
    files: Files, identity: Identity, left: Remains, tell: Callable[[str], None]
) -> KnownTopics:
    """Return what segments and the commits that are left tell of topics."""
    known, segments = KnownTopics(), list(find_segments(files, identity.store_id))
    for segment in segments:
        known.note_segment(segment)
    for key, at_least in named_ends(files, identity.store_id):
        known.ends.note_end(key, at_least)
    for entry in left.entries:
        known.note(entry)
    for segment in segments:  # the log may have told more schemas
        if not known.note_rows(segment):
            tell(
                f"topic {segment.topic}: a segment of partition {segment.partition} at offset "
                f"{segment.row.base_offset} was left out, nothing tells the schema it was written "
                "under; put a checkpoint back from a copy"
            )
    return known


def _added(state: StoreState, topic_id: bytes, known: KnownTopics) -> Topic:
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


def _name_of(state: StoreState, topic_id: bytes, known: KnownTopics) -> str:
    """The name of a topic, or a made-up one if another topic has its name.

    A queue's own log gets a made-up name, because its queue is lost and may be created again.
    """
    name = known.names.get(topic_id)
    if name is None or name in state.topics or queue_of_log(name) is not None:
        return recovered_name(topic_id)
    return name
