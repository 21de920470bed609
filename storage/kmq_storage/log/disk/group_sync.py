"""Group sync: one fdatasync serves every thread and process that waits for its commit.

- **One thread syncs for all.** The thread that gets the sync lock syncs everything written so far
  and publishes the last synced LSN. The others see it and return.
- **The target is read before the sync**, because a frame that is written meanwhile may miss it.
- **Staged files come first**: files that were staged without a sync are synced before the frames
  that name them.
- **A sync under way is marked in the hint page** until it succeeded or was noted as failed. The
  kernel reports a failed write only once and reports success the second time. So when a process
  dies in a sync, its frames are written again.
- **The synced LSN never goes back.**
"""

from __future__ import annotations

import logging

from kmq_storage import limits
from kmq_storage.environment import Environment
from kmq_storage.errors import CommitOutcomeUnknownError
from kmq_storage.log.disk.mending import Mending
from kmq_storage.log.disk.unsynced_frames import UnsyncedFrames
from kmq_storage.log.disk_errors import is_of_the_disk
from kmq_storage.log.files.hint import Hint
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.files.locking import SyncLock

_LOGGER = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 50e-6, 5e-3
#: How long a read-only handle waits for another process's sync, which may have died (seconds).
_OTHERS_WAIT = 1.0


class GroupSync:
    """Brings commits to disk for one process."""

    def __init__(
        self,
        journal: Journal,
        hint: Hint,
        lock: SyncLock,
        mending: Mending,
        environment: Environment,
    ) -> None:
        self._journal = journal
        self._unsynced = UnsyncedFrames(journal, hint)
        self._hint = hint
        self._sync_lock = lock
        self._mending = mending
        self._environment = environment
        self._has_failed = False
        #: The synced LSN when this last waited for a sync of another process.
        self._waited_at = -1
        #: What a read-only handle synced itself, as nobody else may: the page's losses then, as
        #: other commits have the numbers of lost ones, and the last LSN.
        self._own = (0, 0)

    def sync_read_only(self, written: int, known: int) -> int:
        """Sync what others wrote, for a read-only handle: without locks, and without publishing it.

        Commits up to `known` need no sync: the frames that were read tell that they are on disk.

        Returns the last LSN that is known to be on disk. That is `written`, unless a sync of this
        handle or of another process failed, or another process's sync does not end. As the kernel
        reports lost pages only once, this handle then shows only what others synced.
        """
        self._let_others_end(written)
        losses = self._hint.losses
        known = max(known, self._own[1] if self._own[0] == losses else 0)
        synced = max(self._synced(), known)
        if synced >= written or self._is_doubtful():
            return min(synced, written)
        try:
            self._unsynced.sync(synced, written, self._unsynced.staged(synced, written))
        except OSError as error:
            if not is_of_the_disk(error):
                raise
            self._has_failed = True
            _LOGGER.warning(
                "a read-only handle's sync failed (%s): it shows no commit that nobody else syncs, "
                "from %d on",
                error,
                synced + 1,
            )
            return synced
        if self._is_doubtful():
            return min(max(self._synced(), known), written)
        self._own = losses, written
        return written

    def _let_others_end(self, written: int) -> None:
        """Wait for another process's sync under way, since it may cover everything written."""
        synced = self._hint.synced or 0
        if self._hint.sync_unfinished and synced < written and synced != self._waited_at:
            self._waited_at = synced
            self._hint.sleep_while_synced(synced, _OTHERS_WAIT)

    def _synced(self) -> int:
        """The last LSN that others synced; collected commits were on disk, too."""
        return max(self._hint.synced or 0, self._journal.folder.first_lsn() - 1)

    def _is_doubtful(self) -> bool:
        """Whether a successful sync may hide an earlier failure."""
        return self._has_failed or self._hint.sync_failed or self._hint.sync_unfinished

    def wait_durable(self, lsn: int) -> None:
        """Return once the commit with this LSN is on disk.

        UnavailableError when it was lost, CommitOutcomeUnknownError when that can't be known.
        """
        with self._sync_lock.given_back:
            self._wait_durable(lsn)

    def _wait_durable(self, lsn: int) -> None:
        deadline = self._environment.monotonic() + limits.LOCK_TIMEOUT
        pause = _FIRST_WAIT
        while (synced := self._hint.synced or 0) < lsn:
            if self._sync_lock.try_acquire():
                try:
                    self._sync_written(lsn)
                except OSError as error:
                    if not is_of_the_disk(error):
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
            self._mending.recover_up_to(lsn)
            return
        self._hint.note_unfinished_sync()
        if self._hint.sync_failed:
            self._write_again(synced, "by another process")
            return
        # Read before the sync: a frame that is written meanwhile may miss it.
        target = max(self._hint.written or 0, lsn)
        assert target > synced, "what is published as synced never goes back"
        try:
            staged = self._unsynced.staged(synced, target)
            with self._hint.syncing():
                self._unsynced.sync(synced, target, staged)
        except OSError as error:
            if not is_of_the_disk(error):
                raise
            self._hint.note_sync_failed(True)
            self._write_again(synced, str(error))
        else:
            self._hint.publish_synced(target)

    def _write_again(self, synced: int, cause: str) -> None:
        self._unsynced.begin_anew()
        self._mending.write_again(synced, cause)
