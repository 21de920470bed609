"""The end of a log on a disk: reach it, make it clean, and write the next commit there.

- **Writing** needs the append lock and a replica that has read every earlier frame. The order of
  steps is: note on the hint page whether the frame names unsynced staged files, write the frame,
  show it on the page, apply it here. So a frame that is shown is always whole.
- **Bytes behind the last shown frame** were left by a writer that died. Whole frames among them
  are taken over. The rest is a torn tail and is cut.
- **A shown or acknowledged frame that is invalid** is damage: nothing is written behind it.
- **An invalid frame that later frames prove to have been on disk** means that the page is
  outdated. Recovery then finds the end.
- **`Hint.losses`** changes whenever written frames are given up after a failed sync. A replica
  that began under another value may have read lost frames, so it begins anew.
"""

from __future__ import annotations

from contextlib import suppress

from kmq_storage.format.frame import chain_of
from kmq_storage.log.closed import CLOSED
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk.log_on_disk import LogOnDisk
from kmq_storage.log.disk.recovery import look_beyond
from kmq_storage.log.disk_errors import (
    broken_end,
    is_of_the_disk,
    rewriting_goes_on,
    translated,
    unavailable,
)
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.files.locking import AppendLock, GivenBack
from kmq_storage.log.framing import Framed, Stamp
from kmq_storage.log.state.store_state import StoreState

#: Reading this many commits of others takes no longer than writing one.
_FEW_COMMITS = 32


class WrittenEnd:
    """A replica that follows the log up to the last written frame; for one thread at a time."""

    def __init__(self, log: LogOnDisk, append_lock: AppendLock) -> None:
        self._log = log
        self._hint = log.hint
        self._append_lock = append_lock
        self._is_held = False
        if not log.disk.read_only:  # else nothing is ever written, and a second state costs time
            self._begin()

    def _begin(self) -> None:
        """Begin anew at the newest checkpoint."""
        #: `Hint.losses` when this replica began.
        self.losses = self._hint.losses
        #: Whether the end was checked once to have nothing behind it.
        self._looked_beyond = False
        self._replica = self._log.new_replica(indexed=False)

    def close(self) -> None:
        """Drop files, maps and locks, as the traceback of a kept error may keep this object."""
        self._log = self._hint = self._append_lock = self._replica = CLOSED

    @property
    def given_back(self) -> GivenBack:
        """A guard to put around each block that holds the append lock."""
        return self._append_lock.given_back

    @property
    def state(self) -> StoreState:
        """The state at the cursor; it has no offset index."""
        return self._replica.state

    @property
    def cursor(self) -> Cursor:
        """The place after the last frame that was read."""
        return self._replica.cursor

    @property
    def journal(self) -> Journal:
        """The files of the log."""
        return self._replica.journal

    @property
    def is_near(self) -> bool:
        """Whether a commit could be written at once: the lock is free and little is to be read."""
        written = self._hint.written
        if written is None or written - self.cursor.lsn > _FEW_COMMITS:
            return False
        return self._append_lock.seems_free

    # --- reaching it --------------------------------------------------------------------

    def __enter__(self) -> None:
        """Take the append lock, read every written frame, and make the end clean.

        Most frames are read before the lock is taken, so it is held for microseconds only.
        """
        with translated(self._log.disk.url):
            while not self._try_reach():
                self._log.mending.mend()

    def _try_reach(self) -> bool:
        self._is_held = False
        self.follow()
        self._append_lock.acquire(self.follow)
        try:
            self._is_held = self._is_reached() or self._catch_up()
        finally:
            if not self._is_held:
                self._append_lock.release()
        return self._is_held

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._is_held = False
        self._append_lock.release()
        if error is not None and is_of_the_disk(error):
            raise unavailable(error, self._log.disk.url) from error

    def follow(self) -> bool:
        """Read shown frames of others without a lock; False when that did not reach the end."""
        written = self._hint.written
        if written is None or self._hint.losses != self.losses:
            return False
        return self._replica.follow(written)

    def show(self) -> None:
        """Show whole frames of a writer that died before showing them, unless one is writing."""
        with suppress(OSError), self.given_back:  # reading must go on when the disk is full
            self.follow()
            if self._append_lock.try_acquire():
                try:
                    self._catch_up()
                finally:
                    self._append_lock.release()

    def _is_reached(self) -> bool:
        """A quick check whether everything is read and the end is clean."""
        return (
            self._looked_beyond
            and self._hint.is_quiet_at(self.cursor.lsn, self.losses)
            and self.state.broken is None
            and not self.state.damage
            and not self.journal.has_bytes_at(self.cursor)
        )

    def _catch_up(self) -> bool:
        """Read to the end, and make it clean; under the append lock.

        False when the log must be mended first, for example after a failed sync whose process died.
        """
        if not self._hint.valid or self._hint.sync_failed:
            return False
        if self._hint.losses != self.losses:
            self._begin()
        self._advance()
        if self._has_more():
            # Whether to cut is decided by reading the log anew, never by a remembered place.
            self._begin()
            self._advance()
            if self._has_more():
                self._cut()
        self._looked_beyond = True
        return self._hint.valid  # it may have been damaged meanwhile

    def _has_more(self) -> bool:
        """Whether there are bytes at the end; the first time, also anywhere behind it."""
        if self._looked_beyond:
            return self.journal.has_bytes_at(self.cursor)
        return self.journal.has_bytes_behind(self.cursor)

    def _cut(self) -> None:
        durable, _ = look_beyond(self.journal, self.cursor)
        if durable > self.cursor.lsn:  # the page is outdated, and this is no torn tail
            self._hint.distrust()
        else:
            self.journal.cut(self.cursor)

    def _advance(self) -> None:
        written = self._hint.written or 0
        self._replica.advance(written)
        if self._log.mending.explains(self.state):
            self._begin()
            raise rewriting_goes_on(self._log.disk.url)
        if self.cursor.lsn > written:
            # A writer died after it wrote whole frames and before it showed them.
            self._hint.publish_written(self.cursor.lsn)
        if self.state.broken is not None:
            raise broken_end(self.state.broken)

    # --- writing there ------------------------------------------------------------------

    def write(self, commit: Framed, *, synced: bool) -> Cursor:
        """Write one commit and show it; returns the place after it. Only in a `with` block.

        Unless the staged files that it names are `synced`, the log's next sync must sync them.
        """
        after = self.cursor
        assert self._is_held, "a commit is written under the append lock"
        if not synced:  # noted first, as this process may die before it shows the frame
            self._hint.note_staged_unsynced(after.lsn + 1)
        stamp = Stamp(
            after.next_time(self._log.time.now_us(after.time)),
            self._log.environment.new_uuid().bytes,
            min(self._hint.synced or 0, after.lsn),
        )
        length = commit.placed.length
        frame = commit.frame(after, stamp, self._log.identity.seed)
        here = self.journal.append(after, frame, length)
        end = Cursor(
            after.lsn + 1, chain_of(stamp.nonce), stamp.time, here.file, here.position + length
        )
        self._hint.publish_written(end.lsn)  # before applying it here: waking readers takes long
        try:
            self._replica.applied(end, commit.entries, here.position)
        except BaseException:  # interrupted: a half applied state must not be used
            self._begin()
            raise
        return end
