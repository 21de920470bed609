"""Mending the log: after a start of the machine, or when a sync failed.

- Written frames are given up, or written again, only under both locks, sync before append: while
  somebody syncs, no LSN is given out again.
- A file whose sync failed is never synced again; see `rewriting`.
- Who can't have the append lock does not know whether its commit will be stored.
"""

from __future__ import annotations

from collections.abc import Callable

from kmq_storage.errors import CommitOutcomeUnknownError, UnavailableError
from kmq_storage.log.disk_errors import lost_commit
from kmq_storage.log.hint import Hint
from kmq_storage.log.journal import Journal
from kmq_storage.log.locking import AppendLock, SyncLock
from kmq_storage.log.recovery import finish_sync, mend_if_asked, recover
from kmq_storage.log.state import StoreState
from kmq_storage.objects.disk import Disk


class Mending:
    """Knows whether the log must be mended, and does it, for one process."""

    def __init__(
        self,
        disk: Disk,
        journal: Journal,
        hint: Hint,
        append_lock: AppendLock,
        sync_lock: SyncLock,
    ) -> None:
        self._disk = disk
        self._journal = journal
        self._hint = hint
        self._append_lock = append_lock
        self._sync_lock = sync_lock

    def goes_on(self) -> bool:
        """Whether a sync failed, or may be failing now, and frames are about to be rewritten."""
        with self._sync_lock.given_back:
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
        return any(damage.last_lsn > synced for damage in found) and self.goes_on()

    def mend(self) -> None:
        """Recover the log, or write again what a failed sync left out, if the page asks for it."""
        sync, append = self._sync_lock, self._append_lock
        with sync.given_back, sync, append.given_back, append:
            mend_if_asked(self._disk, self._journal, self._hint)

    # --- for who holds the sync lock ----------------------------------------------------

    def recover_up_to(self, lsn: int) -> None:
        """Find the log's end, and bring all of it to disk, unless the page knows this commit.

        UnavailableError when it was lost.
        """

        def recover_if_needed() -> None:
            if not self._hint.valid or (self._hint.written or 0) < lsn:
                recover(self._disk, self._journal, self._hint)

        self._appending(recover_if_needed)
        if (self._hint.written or lsn) < lsn:
            raise lost_commit(self._disk.url, lsn)

    def write_again(self, synced: int, cause: str) -> None:
        """Write again what a failed sync left out, unless somebody did."""

        def repair_if_needed() -> None:
            if self._hint.valid and not self._hint.sync_failed:
                return  # a recovery did it meanwhile
            try:
                finish_sync(self._disk, self._journal, self._hint)
            except OSError as error:
                raise CommitOutcomeUnknownError(
                    f"sync of the log failed ({cause}) and so did writing it again ({error}); "
                    f"commits after {synced} are not on disk",
                    synced=synced,
                ) from error

        self._appending(repair_if_needed)

    def _appending(self, act: Callable[[], None]) -> None:
        """Act under the append lock; not as a `with`, whose generator an interruption leaves."""
        try:
            with self._append_lock.given_back, self._append_lock:
                act()
        except CommitOutcomeUnknownError:
            raise
        except UnavailableError as error:
            message = f"{error.message}; what was written may not be on disk"
            raise CommitOutcomeUnknownError(message, **error.context) from error
