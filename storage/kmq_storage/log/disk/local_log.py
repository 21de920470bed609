"""The commit log on a disk: append a commit, sync it, and see the commits of other processes.

Read `append` first. Expensive work, such as encoding and checksums of batches, is done before it.
Under the append lock, a commit only gets its LSN and offsets and is written with one call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from kmq_storage import limits
from kmq_storage.environment import Environment
from kmq_storage.errors import ClosedError
from kmq_storage.format.identity import Identity
from kmq_storage.log.binding.binding import RefusedError, Unit, bind
from kmq_storage.log.checkpoints.checkpoint import finds_newer
from kmq_storage.log.closed import CLOSED, idle
from kmq_storage.log.commit_log import WrittenCommit
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk.behind import go_on_behind
from kmq_storage.log.disk.group_sync import GroupSync
from kmq_storage.log.disk.log_on_disk import LogOnDisk
from kmq_storage.log.disk.mending import Mending
from kmq_storage.log.disk.past_commits import PastCommits
from kmq_storage.log.disk.visible import VisibleReplica
from kmq_storage.log.disk.written_end import WrittenEnd
from kmq_storage.log.disk_errors import check_writable, rewriting_goes_on, translated
from kmq_storage.log.files.hint import open_hint
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.files.locking import AppendLock, SyncLock
from kmq_storage.log.framing import framed
from kmq_storage.log.log_time import LogTime
from kmq_storage.log.state.lost_ranges import Behind, Unnamed
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import Commit, to_datetime
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.fork import reopen_in_child

#: How often a reader polls for commits while no hint page tells of them (seconds).
_BLIND_PAUSE = 0.05
#: How long (seconds) a store's folder is taken to be where it was seen.
_THERE = 0.1


class LocalLog:
    """A `CommitLog` in files that several processes append to.

    The handle keeps two replicas. The writer's replica is at the written end and binds the next
    commit; a read-only handle has none. The reader's replica stops at the last visible commit and
    knows where records are.
    """

    is_remote = False
    inline_bytes_max = limits.INLINE_COMMIT_BYTES_MAX
    small_room = limits.SMALL_COMMIT_BYTES_MAX - limits.INLINE_COMMIT_BYTES_MAX

    def __init__(
        self, files: Disk, identity: Identity, environment: Environment, *, durable: bool = True
    ) -> None:
        self.files = files
        self.identity = identity
        self.environment = environment
        self.durable = durable
        self._open()
        self._visible = self._reader.state
        reopen_in_child(self._after_fork)

    def _open(self) -> None:
        with translated(self.files.url):
            self._begin()
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._there_until = 0.0
        self._closed = False

    def _begin(self) -> None:
        files, identity = self.files, self.identity
        self._hint = open_hint(files, identity.seed, self.environment)
        append_lock = AppendLock(files, self._hint, self.environment)
        sync_lock = SyncLock(files, self.environment)
        journal = Journal(files, identity, self._hint)
        self._mending = mending = Mending(files, journal, self._hint, append_lock, sync_lock)
        self._sync = GroupSync(journal, self._hint, sync_lock, mending, self.environment)
        self._log = log = LogOnDisk(
            files, identity, self._hint, mending, self.environment, LogTime(self.environment)
        )
        self._past = PastCommits(log)
        self._end = WrittenEnd(log, append_lock)
        self._reader = VisibleReplica(log, self._sync, durable=self.durable)

    def _after_fork(self) -> None:
        """Open descriptors, locks and replicas anew: the child must not share the parent's."""
        if not self._closed:
            self._open()

    @property
    def prompt(self) -> bool:
        """Whether the append lock seems free, with few commits of others left to read."""
        return self._end.is_near

    def append(self, units: Sequence[Unit]) -> WrittenCommit:
        """See `CommitLog.append`; nothing is synced yet."""
        self._check_writable()
        bodies = [body for unit in units for body in unit.bodies]
        with self._writing, self._end.given_back, self._end:
            commit = framed(bind(self._end.state, units), bodies)
            end = self._end.write(commit, synced=all(unit.synced for unit in units))
            losses = self._end.losses
        entries = tuple(commit.entries)
        return WrittenCommit(
            end.lsn, to_datetime(end.time), entries, chain=end.chain or 0, losses=losses
        )

    def commit(self, units: Sequence[Unit], *, durable: bool | None = None) -> WrittenCommit:
        """See `CommitLog.commit`."""
        try:
            commit = self.append(units)
        except RefusedError as refused:
            raise refused.cause from None
        if self.durable if durable is None else durable:
            self.sync(commit)
        return commit

    def written_state(self) -> StoreState:
        """See `CommitLog.written_state`; it announces a commit, which wakes one waiting reader."""
        self._check_writable()
        self._hint.announce()
        with self._writing, translated(self.files.url):
            if not self._end.follow():
                with self._end.given_back, self._end:
                    pass
            return self._end.state

    recent_state = written_state  # on a disk, no request has to be saved

    @property
    def known_state(self) -> StoreState:
        """See `CommitLog.known_state`."""
        return self._visible if self.files.read_only else self._end.state

    def check_open(self) -> None:
        """ClosedError once the handle is closed."""
        if self._closed:
            raise ClosedError("the store is closed")

    def written_commit(self, lsn: int) -> WrittenCommit:
        """See `CommitLog.written_commit`."""
        with translated(self.files.url):
            return self._past.written(lsn, self._end.losses)

    def _check_writable(self) -> None:
        self.check_open()
        check_writable(self.files)

    def sync(self, commit: WrittenCommit | int) -> None:
        """See `CommitLog.sync`."""
        hint, past = self._hint, self._past  # kept, as the handle may be closed meanwhile
        with translated(self.files.url):
            self._sync.wait_durable(commit if isinstance(commit, int) else commit.lsn)
            if not isinstance(commit, int) and hint.losses != commit.losses:
                past.check_survived(commit)

    def refresh(self) -> StoreState:
        """See `CommitLog.refresh`."""
        self.check_open()
        with self._reading, translated(self.files.url):
            now = self.environment.monotonic()
            if finds_newer(self.files, self._reader.state, now):
                self._reader.begin_anew()
            self._reader.make_visible()
            self._reader.look_beyond(self._show_written)
            if self._mending.explains(self._reader.state):
                self._reader.begin_anew()
                raise rewriting_goes_on(self.files.url)
            self._reader.make_sure()
            self._check_there(now)
            self._visible = self._reader.state  # only now, as the reader may restart on the way
            return self._visible

    def _check_there(self, now: float) -> None:
        """OSError when the folder was moved or replaced; it is looked for now and then."""
        if now >= self._there_until:
            self.files.check_there()
            self._there_until = now + _THERE

    def reload(self) -> StoreState:
        """See `CommitLog.reload`."""
        with self._reading, translated(self.files.url):
            self._reader.begin_anew()
        return self.refresh()

    @property
    def state(self) -> StoreState:
        """The state as of the last refresh."""
        return self._visible

    def now_us(self) -> int:
        """See `CommitLog.now_us`."""
        return self._log.time.now_us(self._visible.time)

    def _show_written(self) -> None:
        with self._writing:
            self._end.show()

    def wait(
        self,
        lsn: int,
        timeout: float,
        stopped: Callable[[], bool] = lambda: False,
        rehearse: Callable[[], object] = lambda: None,
    ) -> bool:
        """See `CommitLog.wait`; an announced commit also rehearses the handle's own reading."""
        deadline = self.environment.monotonic() + timeout
        while not self._closed:
            synced, written = self._hint.synced, self._hint.written
            if written is None:
                self.refresh()
                written = self._hint.written or self._reader.lsn
            if written > lsn and self._shows_beyond(lsn):
                return True
            left = deadline - self.environment.monotonic()
            if left <= 0 or stopped():
                return False
            if not self._hint.valid:
                self.environment.sleep(min(left, _BLIND_PAUSE))
            elif written > lsn:
                self._hint.sleep_while_synced(synced or 0, min(left, limits.WAIT_RECHECK))
            else:
                self._hint.sleep_while_written(written, min(left, limits.WAIT_RECHECK))
                if self._hint.written == written:
                    self.refresh()
                    with self._reading:
                        self._reader.rehearse()
                    rehearse()
        raise ClosedError("the store is closed")

    def _shows_beyond(self, lsn: int) -> bool:
        """Whether commits written after this LSN are visible, or become so by a refresh.

        A durable read-only handle may not be able to trust its own sync. Its refresh then shows
        the commits only once another process has synced them.
        """
        return not (self.durable and self.files.read_only) or self.refresh().lsn > lsn

    def wake_waiters(self) -> None:
        """See `CommitLog.wake_waiters`."""
        if not self._closed:
            self._hint.wake()

    def commits(self, start: int | None) -> Iterator[Commit]:
        """See `CommitLog.commits`."""
        with translated(self.files.url):
            state = self.refresh()
            for commit in self._past.commits(start, state, known=self._reader.begun):
                self.check_open()
                yield commit

    def snapshot(self) -> tuple[StoreState, Cursor]:
        """See `CommitLog.snapshot`."""
        seen = self.refresh()
        lsn, broken = seen.lsn, seen.broken
        if lsn and not self.files.read_only:  # read-only: `refresh` synced what it could
            self.sync(lsn)
        with translated(self.files.url):
            replica = self._log.new_replica(indexed=True)
            replica.advance(lsn, lsn)
        replica.state.broken = broken
        return replica.state, replica.cursor

    def go_on_behind(self, unnamed: Unnamed) -> Behind:
        """See `CommitLog.go_on_behind`; the log goes on in a new file."""
        return go_on_behind(self.files, self.identity, self.environment, unnamed)

    def drop_before(self, lsn: int) -> list[str]:
        """See `CommitLog.drop_before`; the last log file always stays."""
        self._check_writable()
        with self._writing, self._end.given_back, self._end:
            return self._end.journal.drop_before(lsn)

    def close(self) -> None:
        """See `CommitLog.close`.

        Calls of other threads that are under way end first. A mapped file stays mapped as long as
        a record batch refers to it.
        """
        if self._closed:
            return
        self._closed = True
        self._hint.wake()
        with idle(self._writing), idle(self._reading):
            self._end.close()
            self._log = self._hint = self._sync = self._mending = CLOSED
            self._past = self._end = self._reader = self._visible = CLOSED
