"""Group sync: one fdatasync serves every thread and process that waits for its commit.

Whoever gets the sync lock syncs everything written so far and publishes how far that was;
the others see it and return. After a failed sync a file is never synced again: its frames
are written once more into a fresh file (the kernel may have dropped the dirty pages and would
report success the second time).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    KmqError,
    UnavailableError,
)
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.log.disk_errors import lost_commit
from kmq_storage.log.hint import Hint
from kmq_storage.log.journal import Cursor, Journal
from kmq_storage.log.locking import AppendLock, held
from kmq_storage.log.recovery import recover, repair
from kmq_storage.log.state import StoreState
from kmq_storage.objects.disk import Disk, Lock

_FIRST_WAIT, _LONGEST_WAIT = 50e-6, 5e-3


class GroupSync:
    """Brings commits to disk for one process."""

    def __init__(
        self,
        disk: Disk,
        journal: Journal,
        hint: Hint,
        locks: tuple[AppendLock, Lock],
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
        # Commits that were collected are on disk.
        synced = max(self._hint.synced or 0, self._journal.first_lsn() - 1)
        if synced < written:
            self._journal.sync_staged(self._staged_between(synced, written))
            self._journal.sync(synced + 1, written)

    def repairing(self) -> bool:
        """Whether a sync failed, or may be failing now, and frames are about to be rewritten."""
        if self._hint.sync_failed or not self._sync_lock.try_acquire():
            return True
        try:
            if not self._disk.read_only:
                self._hint.note_unfinished_sync()
        finally:
            self._sync_lock.release()
        return self._hint.sync_failed

    def explains(self, state: StoreState) -> bool:
        """Whether what looks like damage is a failed sync that is about to be repaired."""
        found = [*state.damage[-1:], *filter(None, [state.broken])]
        synced = (self._hint.synced or 0) if found else 0
        return any(damage.last_lsn > synced for damage in found) and self.repairing()

    def mend(self) -> None:
        """Recover the log, or write again what a failed sync left out, if the page asks for it.

        Under both locks, like everything that gives up written frames: while somebody syncs, no
        LSN is given out again.
        """
        with held(self._sync_lock, self._environment), self._append_lock:
            if not self._hint.valid:
                recover(self._disk, self._journal, self._hint)
            elif self._hint.sync_failed:
                repair(self._disk, self._journal, self._hint)

    def wait_durable(self, lsn: int) -> None:
        """Return when the commit with this LSN is on disk.

        UnavailableError when it was lost, CommitOutcomeUnknownError when it can't be told.
        """
        deadline = self._environment.monotonic() + limits.LOCK_TIMEOUT
        pause = _FIRST_WAIT
        while (synced := self._hint.synced or 0) < lsn:
            if self._sync_lock.try_acquire():
                try:
                    self._sync_written(lsn)
                except OSError as error:
                    if isinstance(error, KmqError):
                        raise
                    raise CommitOutcomeUnknownError(
                        f"commit {lsn} is written, but may not be on disk: {error}", lsn=lsn
                    ) from error
                finally:
                    self._sync_lock.release()
                continue
            self._hint.sleep_while_synced(synced, pause)
            pause = min(pause * 2, _LONGEST_WAIT)
            if (self._hint.synced or 0) > synced:
                deadline = self._environment.monotonic() + limits.LOCK_TIMEOUT
            elif self._environment.monotonic() > deadline:
                raise CommitOutcomeUnknownError(
                    f"{self._sync_lock.holder()} holds the sync lock and syncs nothing for "
                    f"{limits.LOCK_TIMEOUT:g} s; commit {lsn} is written but not on disk yet",
                    lsn=lsn,
                    holder=self._sync_lock.holder(),
                )

    def _sync_written(self, lsn: int) -> None:
        synced = self._hint.synced or 0
        if synced >= lsn:
            return
        if not self._hint.valid or (self._hint.written or 0) < lsn:
            self._look_for(lsn)
            return
        self._hint.note_unfinished_sync()
        if self._hint.sync_failed:
            self._write_again(synced, "by another process")
            return
        target = self._hint.written or 0  # before the sync: what is written meanwhile may miss it
        try:
            staged = self._staged_between(synced, target)
            with self._hint.syncing():
                self._journal.sync_staged(staged)
                self._journal.sync(synced + 1, target)
        except OSError as error:
            self._hint.note_sync_failed(True)
            self._write_again(synced, str(error))
        else:
            self._hint.publish_synced(target)

    def _look_for(self, lsn: int) -> None:
        """The hint page knows no such commit: find the log's end, and bring all of it to disk."""
        with self._appending():
            if not self._hint.valid or (self._hint.written or 0) < lsn:
                recover(self._disk, self._journal, self._hint)
        if (self._hint.written or lsn) < lsn:
            raise lost_commit(self._disk.url, lsn)

    @contextmanager
    def _appending(self) -> Iterator[None]:
        """Hold the append lock; who can't have it does not know whether its commit is stored."""
        try:
            with self._append_lock:
                yield
        except CommitOutcomeUnknownError:
            raise
        except UnavailableError as error:
            message = f"{error.message}; what was written may not be on disk"
            raise CommitOutcomeUnknownError(message, **error.context) from error

    def _staged_between(self, synced: int, target: int) -> set[str]:
        """Files that `durability="os"` staged: they come to disk before the frames naming them."""
        files: set[str] = set()
        if self._hint.staged_unsynced <= synced:
            return files
        cursor, start = self._staged_cursor, self._journal.start_of(synced + 1)
        if cursor.lsn > synced or cursor.file < start.file:
            cursor = start
        try:
            while cursor.lsn < target and (frame := self._journal.next_frame(cursor)) is not None:
                cursor = frame.end
                if cursor.lsn > synced:
                    files |= frame.staged_files()
        except InvalidFrameError as error:
            raise damaged_commit(cursor, str(error)) from error
        self._staged_cursor = cursor
        return files

    def _write_again(self, synced: int, cause: str) -> None:
        self._staged_cursor = Cursor()
        with self._appending():
            if self._hint.valid and not self._hint.sync_failed:
                return  # a recovery did it meanwhile
            try:
                repair(self._disk, self._journal, self._hint)
            except OSError as error:
                raise CommitOutcomeUnknownError(
                    f"sync of the log failed ({cause}) and so did writing it again ({error}); "
                    f"commits after {synced} are not on disk",
                    synced=synced,
                ) from error


def damaged_commit(before: Cursor, reason: str) -> CorruptionError:
    """The error for a commit that can't be read where the next one should stand."""
    file = paths.log_file(before.file)
    return CorruptionError(
        f"commit {before.lsn + 1} in {file} is damaged ({reason})", file=file, lsn=before.lsn + 1
    )
