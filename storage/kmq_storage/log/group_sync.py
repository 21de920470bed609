"""Group sync: one fdatasync serves every thread and process that waits for its commit.

Whoever gets the sync lock syncs everything written so far and publishes how far that was;
the others see it and return. After a failed sync a file is never synced again: its frames
are written once more into a fresh file (the kernel may have dropped the dirty pages and would
report success the second time).
"""

from __future__ import annotations

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.errors import CommitOutcomeUnknownError, UnavailableError
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.log.hint import Hint
from kmq_storage.log.journal import Cursor, Journal
from kmq_storage.log.locking import held
from kmq_storage.objects.disk import Disk, Lock

_FIRST_WAIT, _LONGEST_WAIT = 50e-6, 5e-3


class GroupSync:
    """Brings commits to disk for one process."""

    def __init__(
        self, disk: Disk, journal: Journal, hint: Hint, locks: tuple[Lock, Lock],
        environment: Environment,
    ) -> None:
        self._disk = disk
        self._journal = journal
        #: How far frames were searched for staged files that need a sync.
        self._staged_cursor = Cursor()
        self._hint = hint
        self._append_lock, self._sync_lock = locks
        self._environment = environment

    def sync_read_only(self, written: int) -> None:
        """Bring what others wrote to disk, without locks and without telling anybody."""
        synced = self._hint.synced or 0
        if synced < written:
            self._journal.sync(synced + 1, written)

    def wait_durable(self, lsn: int) -> None:
        """Return when the commit with this LSN is on disk; UnavailableError when it can't be."""
        deadline = self._environment.monotonic() + limits.LOCK_TIMEOUT
        pause = _FIRST_WAIT
        while (synced := self._hint.synced or 0) < lsn:
            if self._sync_lock.try_acquire():
                try:
                    self._sync_written(lsn)
                finally:
                    self._sync_lock.release()
                continue
            self._hint.sleep_while_synced(synced, pause)
            pause = min(pause * 2, _LONGEST_WAIT)
            if (self._hint.synced or 0) > synced:
                deadline = self._environment.monotonic() + limits.LOCK_TIMEOUT
            elif self._environment.monotonic() > deadline:
                raise UnavailableError(
                    f"{self._sync_lock.holder()} holds the sync lock and syncs nothing for "
                    f"{limits.LOCK_TIMEOUT:g} s; commit {lsn} is written but not on disk yet",
                    lsn=lsn, holder=self._sync_lock.holder(),
                )

    def _sync_written(self, lsn: int) -> None:
        synced = self._hint.synced or 0
        if synced >= lsn:
            return
        # Read before the sync: what is written meanwhile may miss it. The caller's own commit
        # is written for certain, whatever the page says.
        target = max(self._hint.written or 0, lsn)
        self._sync_staged(synced, target)
        try:
            self._journal.sync(synced + 1, target)
        except OSError as error:
            self._replace_unsynced(synced, error)
            return
        self._hint.publish_synced(target)

    def _sync_staged(self, synced: int, target: int) -> None:
        """Files that `durability="os"` staged come to disk before the frames that name them."""
        if self._hint.staged_unsynced <= synced:
            return
        if self._staged_cursor.lsn > synced:
            self._staged_cursor = self._journal.start_of(synced + 1)
        found = set()
        while self._staged_cursor.lsn < target:
            frame = self._journal.next_frame(self._staged_cursor)
            if frame is None:
                break
            self._staged_cursor = frame.end
            if frame.header.lsn > synced:
                found |= {
                    paths.staged_file(entry.staged)
                    for entry in frame.entries()
                    if isinstance(entry, RecordsEntry) and entry.staged
                }
        try:
            self._disk.sync_staged(found)
        except OSError as error:
            self._staged_cursor = Cursor()
            raise UnavailableError(
                f"staged files can't be brought to disk ({error}); commits after {synced} are "
                "written but not durable",
                synced=synced,
            ) from error

    def _replace_unsynced(self, synced: int, cause: OSError) -> None:
        """Write every frame after the last synced one again, into a file that never failed."""
        with held(self._append_lock, "append", self._environment):
            try:
                cursor, frames, whole = self._read_unsynced(synced)
                self._journal.replace_from(cursor, frames)
            except OSError as error:
                raise CommitOutcomeUnknownError(
                    f"sync of the log failed ({cause}) and so did writing it again ({error}); "
                    f"commits after {synced} are not on disk",
                    synced=synced,
                ) from error
            end = synced + len(frames)
            if not whole:
                self._hint.count_loss()
            self._hint.publish_written(end)
            self._hint.publish_synced(end)

    def _read_unsynced(self, synced: int) -> tuple[Cursor, list[bytes], bool]:
        """The place after the last synced frame, the frames behind it, and whether all are whole."""
        cursor = self._journal.start_of(synced + 1)
        frames: list[bytes] = []
        start = cursor if cursor.lsn == synced else None
        try:
            while (frame := self._journal.next_frame(cursor, whole=True)) is not None:
                cursor = frame.end
                if cursor.lsn == synced:
                    start = cursor
                elif cursor.lsn > synced:
                    frames.append(self._journal.raw(frame).to_pybytes())
        except InvalidFrameError:
            pass
        if start is None:
            raise OSError("the last synced commit can't be read")
        return start, frames, cursor.lsn >= (self._hint.written or 0)
