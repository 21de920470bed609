"""The commit log in a bucket: whoever creates the object of the next LSN made the commit.

Nobody is asked and nothing is locked: `next_object` says how a commit is made, `follower` how
those of others are read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from kmq_storage import limits
from kmq_storage.environment import Environment
from kmq_storage.errors import ClosedError, UnavailableError
from kmq_storage.format.identity import BucketFacts, Identity
from kmq_storage.log.behind_objects import BehindObjects
from kmq_storage.log.binding import RefusedError, Unit
from kmq_storage.log.checkpoint import has_newer, is_look_due, put_off_look
from kmq_storage.log.collected import collected_lsn, deletable_lsn, mark_collected
from kmq_storage.log.combining import Combining
from kmq_storage.log.commit_log import WrittenCommit
from kmq_storage.log.commit_objects import CommitObjects
from kmq_storage.log.disk_errors import check_writable, collected, translated
from kmq_storage.log.follower import Follower
from kmq_storage.log.journal import Cursor
from kmq_storage.log.lost_ranges import Behind, Unnamed
from kmq_storage.log.next_object import NextObject, stored_commit
from kmq_storage.log.single_writer import SingleWriter
from kmq_storage.log.state import StoreState
from kmq_storage.model import Commit
from kmq_storage.objects.bucket_files import BucketFiles

#: Commits that are fetched at once where they are read one after another.
_AHEAD = 16

#: A store that was not made in a bucket but brought there before its first commit.
NOTHING_KNOWN = BucketFacts("nobody tried when the store was brought there", True, ())


class BucketLog:
    """One handle on the commit log of a store in a bucket; safe for any number of threads.

    What is written is durable and visible at once, so there is one replica for all.
    """

    is_remote = True
    #: Inline batches of one commit, in bytes.
    inline_bytes_max = limits.COMMIT_OBJECT_INLINE_MAX

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
        self._closed = False

    @property
    def lost_races(self) -> int:
        """How often another writer was faster, since this handle was opened."""
        return self._next.lost_races

    @property
    def prompt(self) -> bool:
        """Never: an append waits for the network."""
        return False

    # --- writing ------------------------------------------------------------------------

    def append(self, units: Sequence[Unit]) -> WrittenCommit:
        """Write one commit of all units; it is durable and visible to others.

        What other threads of this handle append meanwhile may share the commit. RefusedError names
        the unit that can't be bound, DuplicateCommitError the commit that is stored already;
        nothing is written then. CommitOutcomeUnknownError when the store didn't answer for long,
        UnavailableError when it refused.
        """
        self._check_writable()
        if self.known_state.damage or self.known_state.broken:
            self.refresh()  # a repair may have written a checkpoint behind that
        return self._combining.append(units)

    def commit(self, units: Sequence[Unit], *, durable: bool | None = None) -> Commit:
        """Append one commit; what a bucket stores is durable, whatever was asked for.

        Raises what was wrong with a unit itself, instead of RefusedError.
        """
        try:
            return self.append(units)
        except RefusedError as refused:
            raise refused.cause from None

    def sync(self, commit: WrittenCommit | int) -> None:
        """Return at once: a commit of a bucket is durable when it is there."""
        lsn = commit if isinstance(commit, int) else commit.lsn
        if lsn > self._follower.cursor.lsn and lsn > self.refresh().lsn:
            raise UnavailableError(f"store {self.files.url} has no commit {lsn} yet", lsn=lsn)

    def _check_writable(self) -> None:
        self.check_open()
        check_writable(self.files)

    # --- reading ------------------------------------------------------------------------

    def written_state(self) -> StoreState:
        """The state with every commit that was there when this was called."""
        self._check_writable()
        return self.refresh()

    def recent_state(self) -> StoreState:
        """The state to prepare the next commit with; up to a second old while commits are made.

        A commit that doesn't fit the newest state is bound again, so this costs no request
        per commit.
        """
        self._check_writable()
        return self._follower.state if self._follower.is_fresh() else self.refresh()

    @property
    def known_state(self) -> StoreState:
        """The state that the next commit would follow as far as this handle knows, at no cost."""
        return self._follower.state

    state = known_state  # one replica is for all

    def now_us(self) -> int:
        """The log's time, UTC us: this clock's, and never before the last commit of `state`."""
        return self._follower.state.not_before(self.environment.now_us())

    def refresh(self) -> StoreState:
        """The state with every commit that was there when this was called."""
        self.check_open()
        with translated(self.files.url):
            self._follower.advance()
            state, now = self._follower.state, self.environment.monotonic()
            if is_look_due(state, now):
                put_off_look(state, now)
                if has_newer(self.files, state):
                    self._follower.begin_anew()
                    self._follower.advance()
        return self._follower.state

    def reload(self) -> StoreState:
        """The state with every visible commit, built anew from the newest checkpoint."""
        self.check_open()
        with translated(self.files.url):
            self._follower.begin_anew()
        return self.refresh()

    def snapshot(self) -> tuple[StoreState, Cursor]:
        """A reader's state of its own with every commit, and where the log goes on."""
        self.check_open()
        with translated(self.files.url):
            follower = Follower(self.files, self._objects, self.environment)
            follower.advance()
        return follower.state, follower.cursor

    def go_on_behind(self, unnamed: Unnamed) -> Behind:
        """Have gaps instead of what damaged commits may have held, and a checkpoint behind them."""
        self._check_writable()
        with translated(self.files.url):
            if self._single is not None:
                self._single.check()
            behind = BehindObjects(self.files, self._objects, self.environment, self._next.create)
            return behind.go_on(unnamed)

    def drop_before(self, lsn: int) -> list[str]:
        """Mark the commits before an LSN as collected, and delete those that were long ago."""
        self._check_writable()
        with translated(self.files.url):
            if lsn - 1 > collected_lsn(self.files):
                mark_collected(self.files, lsn - 1)
            return self._objects.delete_up_to(min(deletable_lsn(self.files), lsn - 1))

    def written_commit(self, lsn: int) -> WrittenCommit:
        """The commit with this LSN; OffsetOutOfRangeError when it was collected."""
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
        """The visible commits from an LSN on; None: from the first that is still there.

        OffsetOutOfRangeError when that commit was collected.
        """
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
        """Sleep until a commit after this LSN is there, at most `timeout` seconds.

        One thread of this handle looks for all; its pauses grow to `FOLLOW_PAUSE_MAX` while
        nothing comes, from one call to the next. A commit that came is in `state`; whether there
        are more, a refresh asks. Also returns when `wake_waiters` was called and `stopped` says so.
        Nobody tells what comes, so nothing is rehearsed.
        """
        now = self.environment.monotonic
        begun = now()
        while self._follower.cursor.lsn <= lsn:
            self.check_open()
            left = begun + timeout - now()
            if left <= 0 or stopped():
                return False
            self._pause_and_look(lsn, min(left, pause_after(now() - self._follower.news_at)))
        return True

    def _pause_and_look(self, lsn: int, seconds: float) -> None:
        looks = self._polling.acquire(blocking=False)
        try:
            with self._follower.changed:
                came = self._follower.cursor.lsn > lsn or self._follower.changed.wait(seconds)
            if looks and not came and not self._closed:
                with translated(self.files.url):
                    self._follower.step()
        finally:
            if looks:
                self._polling.release()

    def wake_waiters(self) -> None:
        """Have every waiting thread look again, for a close from another thread."""
        with self._follower.changed:
            self._follower.changed.notify_all()

    def check_open(self) -> None:
        """ClosedError once the handle is closed."""
        if self._closed:
            raise ClosedError("the store is closed")

    def close(self) -> None:
        """Give back connections; waiting threads end with ClosedError."""
        self._closed = True
        self.wake_waiters()
        if self._single is not None:
            self._single.close()
        self.files.close()


def pause_after(idle: float) -> float:
    """How long to sleep before the next look, when nothing came for some seconds."""
    return min(max(idle / 2, limits.FOLLOW_PAUSE_FIRST), limits.FOLLOW_PAUSE_MAX)
