"""Group sync: one fdatasync serves every thread and process that waits for its commit.

- Whoever gets the sync lock syncs everything written so far and publishes how far that was; the
  others see it and return.
- How far it is written is read before the sync: what is written meanwhile may miss it.
- Files that were staged without a sync come to disk before the frames that name them.
- That a sync is under way stands in the hint page from before it until it succeeded or was told
  to have failed: the kernel tells only once, and reports success the second time. So who dies in
  between leaves frames to be written again; what is published as synced never goes back.
"""

from __future__ import annotations

import logging

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.errors import CommitOutcomeUnknownError
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.log.disk_errors import damaged_commit, is_of_the_disk
from kmq_storage.log.hint import Hint
from kmq_storage.log.journal import Cursor, Journal, StoredFrame
from kmq_storage.log.locking import SyncLock
from kmq_storage.log.mending import Mending

_LOGGER = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 50e-6, 5e-3
#: How long who only reads waits for a sync of somebody else's, who may have died in it (seconds).
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
        #: How far frames were searched for staged files that need a sync.
        self._staged_cursor = Cursor()
        self._hint = hint
        self._sync_lock = lock
        self._mending = mending
        self._environment = environment
        self._has_failed = False
        #: How far it was synced when a sync of somebody else's was waited for.
        self._waited_at = -1

    def sync_read_only(self, written: int, known: int) -> int:
        """Bring what others wrote to disk, without locks and without telling anybody.

        What is `known` to be there by what was read of the log needs no sync.

        The last commit that is known to be there: `written`, unless a sync of this handle failed,
        or one of others did, or does not end. The kernel tells of lost pages once, so after that
        it shows what others synced.
        """
        self._let_others_end(written)
        synced = max(self._synced(), known)
        if synced >= written or self._is_doubtful():
            return min(synced, written)
        try:
            self._sync_between(synced, written, self._staged_between(synced, written))
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
        return min(max(self._synced(), known), written) if self._is_doubtful() else written

    def _let_others_end(self, written: int) -> None:
        """Wait for a sync that is under way: what it brings to disk may be all that there is."""
        synced = self._hint.synced or 0
        if self._hint.sync_unfinished and synced < written and synced != self._waited_at:
            self._waited_at = synced
            self._hint.sleep_while_synced(synced, _OTHERS_WAIT)

    def _synced(self) -> int:
        """How far others synced; commits that were collected are on disk."""
        return max(self._hint.synced or 0, self._journal.folder.first_lsn() - 1)

    def _is_doubtful(self) -> bool:
        """Whether a sync that goes well may hide one that failed."""
        return self._has_failed or self._hint.sync_failed or self._hint.sync_unfinished

    def wait_durable(self, lsn: int) -> None:
        """Return when the commit with this LSN is on disk.

        UnavailableError when it was lost, CommitOutcomeUnknownError when it can't be told.
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
        # Before the sync: what is written meanwhile may miss it.
        target = max(self._hint.written or 0, lsn)
        assert target > synced, "what is published as synced never goes back"
        try:
            staged = self._staged_between(synced, target)
            with self._hint.syncing():
                self._sync_between(synced, target, staged)
        except OSError as error:
            if not is_of_the_disk(error):
                raise
            self._hint.note_sync_failed(True)
            self._write_again(synced, str(error))
        else:
            self._hint.publish_synced(target)

    def _sync_between(self, synced: int, target: int, staged: set[str]) -> None:
        """Sync frames, and before them the staged files that they name.

        A file that somebody removed is no failing disk: its records are damage, which readers
        name, and all others stay. Only where the page knows nothing may it be a file that a start
        of the machine took away, and then the log ends before it.
        """
        there = {file for file in staged if not self._hint.valid or self._journal.has_staged(file)}
        self._journal.sync_staged(there)
        self._journal.sync(synced + 1, target)

    def _staged_between(self, synced: int, target: int) -> set[str]:
        """Files that `durability="os"` staged: they come to disk before the frames naming them."""
        files: set[str] = set()
        if self._hint.staged_unsynced <= synced:
            return files
        cursor, start = self._staged_cursor, self._journal.start_of(synced + 1)
        if cursor.lsn > synced or cursor.file < start.file:
            cursor = start
        while cursor.lsn < target and (frame := self._next(cursor, synced)) is not None:
            cursor = frame.end
            if cursor.lsn > synced:
                files |= frame.staged_files()
        self._staged_cursor = cursor
        return files

    def _next(self, cursor: Cursor, synced: int) -> StoredFrame | None:
        """The frame after a place, or, where damage stands up to `synced`, the first behind it."""
        try:
            frame = self._journal.next_frame(cursor)
        except InvalidFrameError as error:
            if cursor.lsn >= synced:
                file = paths.log_file(cursor.file)
                raise damaged_commit(file, cursor.lsn + 1, str(error)) from error
            frame = None
        if frame is None and cursor.lsn < synced:
            found = self._journal.try_resync(cursor)
            return found and found[1]
        return frame

    def _write_again(self, synced: int, cause: str) -> None:
        self._staged_cursor = Cursor()
        self._mending.write_again(synced, cause)
