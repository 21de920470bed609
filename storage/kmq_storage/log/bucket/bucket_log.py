"""The commit log in a bucket: the writer that creates the object of the next LSN has committed.

There is no lock and no coordinator. `next_object` describes how a commit is made, `follower` how
the commits of other writers are read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence

from kmq_storage import limits
from kmq_storage.environment import Environment
from kmq_storage.errors import ClosedError, UnavailableError
from kmq_storage.format.identity import BucketFacts, Identity
from kmq_storage.log.binding.binding import RefusedError, Unit
from kmq_storage.log.bucket.behind_objects import BehindObjects
from kmq_storage.log.bucket.collected import collected_lsn, deletable_lsn, mark_collected
from kmq_storage.log.bucket.combining import Combining
from kmq_storage.log.bucket.commit_objects import CommitObjects
from kmq_storage.log.bucket.follower import Follower
from kmq_storage.log.bucket.next_object import NextObject, stored_commit
from kmq_storage.log.bucket.single_writer import SingleWriter
from kmq_storage.log.checkpoints.checkpoint import finds_newer
from kmq_storage.log.commit_log import WrittenCommit
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk_errors import check_writable, collected, translated
from kmq_storage.log.state.lost_ranges import Behind, Unnamed
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import Commit
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.credentials import check_process

#: How many commits are fetched at once when commits are read in sequence.
_AHEAD = 16

#: For a store that was copied into a bucket before its first commit, where nothing was probed.
NOTHING_KNOWN = BucketFacts("nobody tried when the store was brought there", True, ())


class BucketLog:
    """A `CommitLog` in a bucket.

    A written commit is durable and visible at once, so one replica serves writers and readers.
    """

    is_remote = True
    inline_bytes_max = limits.COMMIT_OBJECT_INLINE_MAX
    small_room = 0

    def __init__(
        self,
        files: BucketFiles,
        identity: Identity,
        environment: Environment,
        *,
        durable: bool = True,
    ) -> None:
        self.files = files
        self.identity = identity
        self.environment = environment
        self.durable = durable
        facts = identity.bucket or NOTHING_KNOWN
        files.conditional = facts.conditional
        self._objects = CommitObjects(files, identity.seed)
        self._single = SingleWriter(files, facts, environment) if facts.one_writer else None
        with translated(files.url):
            self._follower = Follower(files, self._objects, environment)
        self._next = NextObject(
            files, self._objects, self._follower, environment, single=self._single
        )
        self._combining = Combining(self._next.append, bytes_max=self.inline_bytes_max)
        self._polling = threading.Lock()
        self._process = os.getpid()
        self._closed = False

    @property
    def lost_races(self) -> int:
        """How often another writer won the race for an LSN since this handle was opened."""
        return self._next.lost_races

    @property
    def prompt(self) -> bool:
        """Always False: an append waits for the network."""
        return False

    # --- writing ------------------------------------------------------------------------

    def append(self, units: Sequence[Unit]) -> WrittenCommit:
        """See `CommitLog.append`; the commit is durable at once.

        Units that other threads of this handle append meanwhile may share the commit.
        UnavailableError when the bucket refuses the upload, CommitOutcomeUnknownError when the
        bucket does not answer in time.
        """
        self._check_writable()
        if self.known_state.damage or self.known_state.broken:
            self.refresh()  # a repair may have written a checkpoint behind the damage
        return self._combining.append(units)

    def commit(self, units: Sequence[Unit], *, durable: bool | None = None) -> WrittenCommit:
        """See `CommitLog.commit`; a commit in a bucket is durable whatever `durable` says."""
        try:
            return self.append(units)
        except RefusedError as refused:
            raise refused.cause from None

    def sync(self, commit: WrittenCommit | int) -> None:
        """Check that the commit is in the bucket, where it is durable.

        UnavailableError when it is not there.
        """
        lsn = commit if isinstance(commit, int) else commit.lsn
        if lsn > self._follower.cursor.lsn and lsn > self.refresh().lsn:
            raise UnavailableError(f"store {self.files.url} has no commit {lsn} yet", lsn=lsn)

    def _check_writable(self) -> None:
        self.check_open()
        check_writable(self.files)

    # --- reading ------------------------------------------------------------------------

    def written_state(self) -> StoreState:
        """See `CommitLog.written_state`; it has every commit up to the time of the call."""
        self._check_writable()
        return self.refresh()

    def recent_state(self) -> StoreState:
        """See `CommitLog.recent_state`; a state of the last second costs no request.

        An old state is safe: a commit that does not fit the newest state is bound again.
        """
        self._check_writable()
        return self._follower.state if self._follower.is_fresh() else self.refresh()

    @property
    def known_state(self) -> StoreState:
        """See `CommitLog.known_state`."""
        return self._follower.state

    state = known_state  # one replica serves writers and readers

    def now_us(self) -> int:
        """See `CommitLog.now_us`."""
        return self._follower.time.now_us(self._follower.state.time)

    def refresh(self) -> StoreState:
        """See `CommitLog.refresh`; the state has every commit up to the time of the call."""
        self.check_open()
        with translated(self.files.url):
            self._follower.advance()
            if finds_newer(self.files, self._follower.state, self.environment.monotonic()):
                self._follower.begin_anew()
                self._follower.advance()
        return self._follower.state

    def reload(self) -> StoreState:
        """See `CommitLog.reload`."""
        self.check_open()
        with translated(self.files.url):
            self._follower.begin_anew()
        return self.refresh()

    def snapshot(self) -> tuple[StoreState, Cursor]:
        """See `CommitLog.snapshot`."""
        self.check_open()
        with translated(self.files.url):
            follower = Follower(self.files, self._objects, self.environment)
            follower.advance()
        return follower.state, follower.cursor

    def go_on_behind(self, unnamed: Unnamed) -> Behind:
        """See `CommitLog.go_on_behind`."""
        self._check_writable()
        with translated(self.files.url):
            if self._single is not None:
                self._single.check()
            behind = BehindObjects(self.files, self._objects, self.environment, self._next.create)
            return behind.go_on(unnamed)

    def drop_before(self, lsn: int) -> list[str]:
        """See `CommitLog.drop_before`.

        Commits are first only marked as collected; their objects are deleted some time later.
        """
        self._check_writable()
        with translated(self.files.url):
            if lsn - 1 > collected_lsn(self.files):
                mark_collected(self.files, lsn - 1)
            return self._objects.delete_up_to(min(deletable_lsn(self.files), lsn - 1))

    def written_commit(self, lsn: int) -> WrittenCommit:
        """See `CommitLog.written_commit`."""
        with translated(self.files.url):
            first = collected_lsn(self.files) + 1
            if lsn < first:
                raise collected(self.files.url, lsn, first)
            return self._stored(lsn)

    def _stored(self, lsn: int) -> WrittenCommit:
        found = self._next.read_back(lsn)
        if found is None:
            raise UnavailableError(f"store {self.files.url} has no commit {lsn}", lsn=lsn)
        return stored_commit(found.end, found.entries())

    def commits(self, start: int | None) -> Iterator[Commit]:
        """See `CommitLog.commits`."""
        last = self.refresh().lsn
        with translated(self.files.url):
            first = collected_lsn(self.files) + 1
        wanted = first if start is None else max(start, 1)
        if wanted < first:
            raise collected(self.files.url, wanted, first)
        for lsn in range(wanted, last + 1):
            self.check_open()
            if (lsn - wanted) % _AHEAD == 0:
                self._objects.fetch_ahead(lsn, min(2 * _AHEAD, last + 1 - lsn))
            with translated(self.files.url):
                found = self._stored(lsn)
            yield Commit(found.lsn, found.time, found.entries, (found.lsn, 0))

    def wait(
        self,
        lsn: int,
        timeout: float,
        stopped: Callable[[], bool] = lambda: False,
        rehearse: Callable[[], object] = lambda: None,
    ) -> bool:
        """See `CommitLog.wait`; commits in a bucket are not announced, so nothing is rehearsed.

        One thread of this handle polls for all waiting threads. While no commit arrives, its
        pauses grow up to `FOLLOW_PAUSE_MAX`, also across calls. A commit that arrived is in
        `state`; a refresh finds any further ones.
        """
        now = self.environment.monotonic
        begun = now()
        while self._follower.cursor.lsn <= lsn:
            self.check_open()
            left = begun + timeout - now()
            if left <= 0 or stopped():
                return False
            seconds = min(left, pause_after(now() - self._follower.news_at))
            self._pause_and_look(
                lambda: self._follower.cursor.lsn > lsn or stopped() or self._closed, seconds
            )
        return True

    def _pause_and_look(self, is_over: Callable[[], bool], seconds: float) -> None:
        looks = self._polling.acquire(blocking=False)
        try:
            if not self._follower.sleepers.sleep(is_over, seconds) and looks:
                with translated(self.files.url):
                    self._follower.step()
        finally:
            if looks:
                self._polling.release()

    def wake_waiters(self) -> None:
        """See `CommitLog.wake_waiters`."""
        self._follower.sleepers.wake()

    def check_open(self) -> None:
        """ClosedError once the handle is closed; IllegalStateError in a forked child.

        There, a lock may be held for ever: by a thread that only the parent has.
        """
        if self._closed:
            raise ClosedError("the store is closed")
        check_process(self.files.url, self._process)

    def close(self) -> None:
        """See `CommitLog.close`; connections are released."""
        self._closed = True
        self.wake_waiters()
        if self._single is not None:
            self._single.close()
        self.files.close()


def pause_after(idle: float) -> float:
    """How long to sleep before the next look when no commit came for `idle` seconds."""
    return min(max(idle / 2, limits.FOLLOW_PAUSE_FIRST), limits.FOLLOW_PAUSE_MAX)
