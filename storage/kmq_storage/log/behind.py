"""Going on behind damage: a checkpoint of what can be read, and a new log file after it.

What was lost becomes gaps, which readers are told of; offsets that may have been given out are
never given out again. See docs/design/repair.md for the order of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.format.frame import chain_of
from kmq_storage.format.identity import Identity
from kmq_storage.format.manifest import Key
from kmq_storage.log.checkpoint import write_checkpoint
from kmq_storage.log.hint import open_hint
from kmq_storage.log.journal import Cursor, Journal
from kmq_storage.log.locking import AppendLock, SyncLock
from kmq_storage.log.offset_index import Gap
from kmq_storage.log.recovery import mend_if_asked
from kmq_storage.log.replica import Replica
from kmq_storage.log.state import StoreState
from kmq_storage.objects.disk import Disk

#: A stored record takes no less: its timestamp.
_ROW_BYTES_MIN = 8


@dataclass(frozen=True, slots=True)
class CutOut:
    """Offsets of a partition that were given up."""

    topic: str
    partition: int
    gap: Gap


def go_on_behind(
    files: Disk, identity: Identity, environment: Environment, staged_rows: Mapping[Key, int]
) -> list[CutOut]:
    """Write a checkpoint of all that can be read, and have the log go on in a new file.

    `staged_rows`: rows in files that no commit names; lost commits may have. Killed anywhere, the
    store is as before or as after.
    """
    hint = open_hint(files, identity.seed, environment)
    journal = Journal(files, identity, hint)
    began = files.now()
    append_lock = AppendLock(files.open_lock(paths.APPEND_LOCK), hint, environment)
    # Both: nobody takes damage for a failed sync, or a failed sync for damage.
    with SyncLock(files.open_lock(paths.SYNC_LOCK), environment), append_lock:
        mend_if_asked(files, journal, hint)  # what others failed to sync is not synced here
        replica = Replica(files, journal, indexed=True)
        replica.advance(hint.mark)
        state = replica.state
        last = max(state.lsn, hint.mark)
        cut = _accepted(state, last, staged_rows)
        state.lsn = last
        with hint.syncing():
            journal.sync(1, last)
        with hint.rolling(last):  # nobody goes on in the file before it, should this one die here
            file = files.open_log(paths.log_file(last + 1), identity.log_file_bytes, create=True)
            file.clear_from(0)  # what an earlier end of the log left there proves nothing
            file.sync()
        hint.publish_synced(last)
        hint.publish_written(last)
        end = _end(replica.cursor, last, environment)
        hint.count_loss(last)  # before, too: who knows no damage yet begins anew, should this die
        write_checkpoint(files, state, end, environment.new_uuid, began=began)
        hint.count_roll(last)
        hint.count_loss(last)
    return cut


def _end(read: Cursor, last: int, environment: Environment) -> Cursor:
    """The begin of the new file: it follows the last commit, or nothing that there ever was."""
    is_whole = read.lsn == last and read.chain is not None
    chain = read.chain if is_whole else chain_of(environment.new_uuid().bytes)
    return Cursor(last, chain, max(environment.now_us(), read.time), last + 1, 0)


def _accepted(state: StoreState, last: int, staged_rows: Mapping[Key, int]) -> list[CutOut]:
    """Have gaps where a state has damage, and no damage any more."""
    cut = lost_ranges(state, last, staged_rows)
    for each in cut:
        topic = state.topics[each.topic]
        part = topic.parts[each.partition]
        part.end = max(part.end, each.gap.end)
        topic.index(each.partition).cut_out(each.gap)
        state.cut.add((topic.id, each.partition))
    for topic in state.topics.values():
        for part in topic.parts:
            part.doubt = None
    state.damage, state.broken = [], None
    return cut


def lost_ranges(state: StoreState, last: int, staged_rows: Mapping[Key, int]) -> list[CutOut]:
    """What damage took of each partition: offsets between others, and all there may be behind.

    `last` is the last commit that there was.
    """
    cut = []
    lost = list(state.damage)
    if state.broken is not None:
        lost.append(replace(state.broken, last_lsn=max(last, state.broken.first_lsn)))
    commits = sum(damage.last_lsn - damage.first_lsn + 1 for damage in lost)
    inline = rows_at_most(commits)
    for topic in state.topics.values():
        for number, part in enumerate(topic.parts):
            index, key = topic.index(number), (topic.id, number)
            gaps = [Gap(hole.start, hole.end, hole.damage.reason) for hole in index.holes]
            doubt = part.doubt or state.broken
            if doubt is not None:
                end = max(part.end + inline + staged_rows.get(key, 0), _committed(state, key))
                end = max(end, part.start)
                gaps.append(Gap(part.end, end, doubt.reason))
            cut += [CutOut(topic.name, number, gap) for gap in gaps]
    return cut


def rows_at_most(commits: int) -> int:
    """How many records may have stood inside commits that can't be read."""
    return commits * limits.INLINE_COMMIT_BYTES_MAX // _ROW_BYTES_MIN


def _committed(state: StoreState, key: Key) -> int:
    """The highest offset of a partition that a group committed."""
    topic_id, number = key
    return max(
        (group.offsets.get(topic_id, {}).get(number, 0) for group in state.groups.values()),
        default=0,
    )
