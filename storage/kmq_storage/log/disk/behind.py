"""Going on behind damage: write a checkpoint of all readable commits, and a new log file after it.

Lost records are put back from segments, or become gaps that readers are told of
(`log.state.lost_ranges`). docs/design/repair.md has the order of the steps.
"""

from __future__ import annotations

from kmq_storage import paths
from kmq_storage.environment import Environment
from kmq_storage.format.frame import chain_of
from kmq_storage.format.identity import Identity
from kmq_storage.format.manifest import Row
from kmq_storage.log.checkpoints.checkpoint import write_checkpoint
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk.recovery import mend_if_asked
from kmq_storage.log.disk.replica import Replica
from kmq_storage.log.disk.unsynced_frames import UnsyncedFrames
from kmq_storage.log.files.hint import open_hint
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.files.locking import AppendLock, SyncLock
from kmq_storage.log.state.lost_ranges import Behind, Unnamed, plan_behind, recount
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.objects.disk import Disk


def go_on_behind(
    files: Disk, identity: Identity, environment: Environment, unnamed: Unnamed
) -> Behind:
    """Write a checkpoint of all that can be read, and let the log go on in a new file.

    If the process is killed, the store is either unchanged or repaired.
    """
    hint = open_hint(files, identity.seed, environment)
    journal = Journal(files, identity, hint)
    began = files.now()
    # Under both locks, no process can take damage for a failed sync, or a failed sync for damage.
    with SyncLock(files, environment), AppendLock(files, hint, environment):
        mend_if_asked(files, journal, hint)  # what others failed to sync is not synced here
        replica = Replica(files, journal, indexed=True)
        replica.advance(hint.mark)
        state = replica.state
        last = max(state.lsn, hint.mark)
        behind = plan_behind(state, last, unnamed)
        _accept(state, last, behind)
        state.lsn = last
        unsynced = UnsyncedFrames(journal, hint)
        staged = unsynced.staged(hint.synced or 0, last)
        with hint.syncing():
            unsynced.sync(0, last, staged)
        with hint.rolling(last):  # if this process dies here, nobody goes on in the file before
            file = files.open_log(paths.log_file(last + 1), identity.log_file_bytes, create=True)
            file.clear_from(0)  # what an earlier end of the log left there proves nothing
            file.sync()
        hint.publish_synced(last)
        hint.publish_written(last)
        end = _end(replica.cursor, last, environment)
        hint.count_loss(last)  # before, too: if this process dies, others must begin anew
        write_checkpoint(files, state, end, environment.new_uuid, began=began)
        hint.count_roll(last)
        hint.count_loss(last)
    return behind


def _end(read: Cursor, last: int, environment: Environment) -> Cursor:
    """The begin of the new file: it follows the last commit, or nothing that there ever was."""
    is_whole = read.lsn == last and read.chain is not None
    chain = read.chain if is_whole else chain_of(environment.new_uuid().bytes)
    return Cursor(last, chain, max(environment.now_us(), read.time), last + 1, 0)


def _accept(state: StoreState, last: int, behind: Behind) -> None:
    """Replace the damage in a state by rows that were found, and gaps."""
    for found in behind.put_back:
        _put_back(state.topics[found.topic], found.partition, found.row, last)
    for each in behind.cut:
        topic = state.topics[each.topic]
        part = topic.parts[each.partition]
        part.end = max(part.end, each.gap.end)
        topic.index(each.partition).cut_out(each.gap)
        state.cut.add((topic.id, each.partition))
    for topic in state.topics.values():
        for number, part in enumerate(topic.parts):
            part.doubt = None
            topic.index(number).holes = []  # what of them was not put back is cut out
    recount(state)
    state.damage, state.broken = [], None


def _put_back(topic: Topic, number: int, row: Row, last: int) -> None:
    """Add the row of a segment, in place of rows for the same offsets; older plans are void."""
    part = topic.parts[number]
    part.end = max(part.end, row.end_offset)
    part.layout_lsn = last
    topic.columns |= topic.layout().sealed_columns  # any record may be a tombstone
    topic.index(number).replace(row)
