"""Going on behind damaged commits in a bucket: a commit with gaps, and a checkpoint behind it.

Other writers can't be stopped meanwhile. So what is given up is written in an ordinary commit: its
name can be taken only once, it follows the state on which it was planned, and every handle applies
it. See docs/design/repair.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kmq_storage.environment import Environment
from kmq_storage.log.bucket.commit_objects import BEHIND_LOST, CommitObjects, NewCommit
from kmq_storage.log.bucket.follower import Follower
from kmq_storage.log.checkpoints.checkpoint import write_checkpoint
from kmq_storage.log.framing import Stamp, framed
from kmq_storage.log.state.lost_ranges import Behind, CutOut, Unnamed, lost_ranges, recount
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.bucket_files import BucketFiles

#: The most gaps of one commit, which is limited to 4 MiB; further partitions stay in doubt.
_GAPS_MAX = 4096


class BehindObjects:
    """Repairs a log with unreadable commits; if it is killed, the next repair goes on."""

    def __init__(
        self,
        files: BucketFiles,
        objects: CommitObjects,
        environment: Environment,
        create: Callable[[NewCommit], bool],
    ) -> None:
        self._files = files
        self._objects = objects
        self._environment = environment
        self._create = create

    def go_on(self, unnamed: Unnamed) -> Behind:
        """Cut out lost records, and write a checkpoint without damage."""
        began = self._files.now()
        follower = Follower(self._files, self._objects, self._environment)
        cut: list[CutOut] = []
        while True:
            follower.advance()
            state = follower.state
            if self._block_missing(state):
                follower.begin_anew()
                continue
            lost = lost_ranges(state, state.lsn, unnamed)[:_GAPS_MAX]
            if not lost and state.broken is None:
                break
            if self._create(self._next_commit(follower, lost)):
                cut += lost
        if state.damage:
            state.damage = []
            recount(state)
            new_uuid = self._environment.new_uuid
            write_checkpoint(self._files, state, follower.cursor, new_uuid, began=began)
        return Behind((), cut)

    def _block_missing(self, state: StoreState) -> bool:
        """Occupy the name of a lost commit, so that no writer uses it unknowingly."""
        names = [
            lsn for each in state.lost_commits for lsn in range(each.first_lsn, each.last_lsn + 1)
        ]
        missing = [lsn for lsn in names if not self._objects.exists(lsn)]
        for lsn in missing:
            self._objects.block(lsn)
        return bool(missing)

    def _next_commit(self, follower: Follower, lost: Sequence[CutOut]) -> NewCommit:
        state, after = follower.state, follower.cursor
        if state.broken is not None:
            last = state.broken.last_lsn
            while self._objects.exists(last + 1):
                last += 1
            after = replace(after, lsn=last, chain=BEHIND_LOST)
        time = after.next_time(self._environment.now_us())
        stamp = Stamp(time, self._environment.new_uuid().bytes, after.lsn)
        places = ((each.gap, (state.topics[each.topic].id, each.partition)) for each in lost)
        return NewCommit(after, stamp, framed([gap.entry(k, state.lsn) for gap, k in places], []))
