"""Mending the log, after a reboot or a failed sync.

- Written frames are given up or rewritten only under both locks, taken in the order sync, append.
  So no LSN is given out a second time while a process syncs.
- A file whose sync failed is never synced again; see `rewriting`.
- A thread that can't get the append lock to mend the log does not know whether its commit will
  be stored (CommitOutcomeUnknownError).
"""

from __future__ import annotations

from collections.abc import Callable

from kmq_storage.errors import CommitOutcomeUnknownError, UnavailableError
from kmq_storage.log.disk.recovery import finish_sync, mend_if_asked, recover
from kmq_storage.log.disk_errors import lost_commit
from kmq_storage.log.files.hint import Hint
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.files.locking import AppendLock, SyncLock
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.disk import Disk


class Mending:
    """Finds out whether the log must be mended, and mends it."""

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

    def may_rewrite(self) -> bool:
        """Whether frames may be rewritten soon: a sync failed, or may be failing just now."""
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
        """Whether apparent damage in a state comes from a failed sync that will be mended soon."""
        found = [*state.damage[-1:], *filter(None, [state.broken])]
        synced = (self._hint.synced or 0) if found else 0
        return any(damage.last_lsn > synced for damage in found) and self.may_rewrite()

    def mend(self) -> None:
        """Recover the log or rewrite frames after a failed sync, where the hint page asks."""
        sync, append = self._sync_lock, self._append_lock
        with sync.given_back, sync, append.given_back, append:
            mend_if_asked(self._disk, self._journal, self._hint)

    # --- only under the sync lock -------------------------------------------------------

    def recover_up_to(self, lsn: int) -> None:
        """Recover the log unless the hint page has this commit as written.

        UnavailableError when the commit was lost.
        """

        def recover_if_needed() -> None:
            if not self._hint.valid or (self._hint.written or 0) < lsn:
                recover(self._disk, self._journal, self._hint)

        self._appending(recover_if_needed)
        if (self._hint.written or lsn) < lsn:
            raise lost_commit(self._disk.url, lsn)

    def write_again(self, synced: int, cause: str) -> None:
        """Rewrite the frames after `synced` after a failed sync, unless another process did."""

        def repair_if_needed() -> None:
            if self._hint.valid and not self._hint.sync_failed:
                return  # another process mended the log meanwhile
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
        """Call `act` under the append lock.

        This is no context manager made of a generator, which an interruption could leave early.
        """
        try:
            with self._append_lock.given_back, self._append_lock:
                act()
        except CommitOutcomeUnknownError:
            raise
        except UnavailableError as error:
            message = f"{error.message}; what was written may not be on disk"
            raise CommitOutcomeUnknownError(message, **error.context) from error
