"""The end of a log on a disk, where commits are written: reach it, make it clean, write there.

- Nobody writes but under the append lock, with a replica that has read every frame before.
- That it names staged files which are not on disk is noted on the page before a frame is written,
  then it is written, then shown, then applied here. What is shown is whole.
- Behind the last frame that was shown stands what a writer left that died. Frames that prove
  themselves whole are taken over; the rest is a torn tail, and cut. What was shown or acknowledged
  and does not prove itself is damage: nothing is written behind it. So it is where later frames
  tell that it was on disk: then the page is of an earlier moment, and recovery finds the end.
- `Hint.losses` grows whenever written frames are given up after a failed sync. Who began under
  another count may have read what is gone, and begins anew.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kmq_storage.format.frame import chain_of
from kmq_storage.log.closed import Closed
from kmq_storage.log.disk_errors import (
    broken_end,
    is_of_the_disk,
    rewriting_goes_on,
    translated,
    unavailable,
)
from kmq_storage.log.framing import Framed, Stamp
from kmq_storage.log.journal import Cursor, Journal
from kmq_storage.log.locking import AppendLock, GivenBack
from kmq_storage.log.log_on_disk import LogOnDisk
from kmq_storage.log.recovery import look_beyond
from kmq_storage.log.state import StoreState

#: Reading so many commits of others takes no longer than writing one.
_FEW_COMMITS = 32


class WrittenEnd:
    """A replica that goes as far as frames are written; one thread at a time uses it."""

    def __init__(self, log: LogOnDisk, append_lock: AppendLock) -> None:
        self._log = log
        self._hint = log.hint
        self._append_lock = append_lock
        self._is_held = False
        self._start()

    def _start(self) -> None:
        """Begin anew at the newest checkpoint."""
        #: The count of losses under which it began.
        self.losses = self._hint.losses
        #: Whether a blank place was seen to be the end, with nothing behind it.
        self._looked_beyond = False
        self._replica = self._log.new_replica(indexed=False)

    def close(self) -> None:
        """Let go of files, maps and locks: frames of an error that is kept have this object."""
        gone: Any = Closed()
        self._log = self._hint = self._append_lock = self._replica = gone

    @property
    def given_back(self) -> GivenBack:
        """Around each block that holds it."""
        return self._append_lock.given_back

    @property
    def state(self) -> StoreState:
        """What was read so far; it knows no chunks."""
        return self._replica.state

    @property
    def cursor(self) -> Cursor:
        """Where the next commit is written, as far as was read."""
        return self._replica.cursor

    @property
    def journal(self) -> Journal:
        """The log's files."""
        return self._replica.journal

    @property
    def is_near(self) -> bool:
        """Whether a commit would not wait: nobody else is at it, and there is little to read."""
        written = self._hint.written
        if written is None or written - self.cursor.lsn > _FEW_COMMITS:
            return False
        return self._append_lock.seems_free

    # --- reaching it --------------------------------------------------------------------

    def __enter__(self) -> None:
        """Hold the append lock, with all read that is written, and a clean end behind it.

        Most of the way is gone before the lock is taken, so that it is held for microseconds.
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
        """Read finished frames of others, without a lock; False when the end can't be known so."""
        written = self._hint.written
        if written is None or self._hint.losses != self.losses:
            return False
        return self._replica.follow(written)

    def show(self) -> None:
        """Take over whole frames that nobody was shown, unless somebody is writing just now."""
        with suppress(OSError), self.given_back:  # a full disk is no reason to read nothing
            self.follow()
            if self._append_lock.try_acquire():
                try:
                    self._catch_up()
                finally:
                    self._append_lock.release()

    def _is_reached(self) -> bool:
        """Whether all is read, and nothing stands behind it; quickly told."""
        return (
            self._looked_beyond
            and self._hint.is_quiet_at(self.cursor.lsn, self.losses)
            and self.state.broken is None
            and not self.state.damage
            and not self.journal.has_bytes_at(self.cursor)
        )

    def _catch_up(self) -> bool:
        """Read to the end, and make it clean.

        False when the log must be mended first: whoever should write again may have died.
        """
        if not self._hint.valid or self._hint.sync_failed:
            return False
        if self._hint.losses != self.losses:
            self._start()
        self._advance()
        if self._has_more():
            # What is cut is decided by a look at the whole log, never by a remembered place.
            self._start()
            self._advance()
            if self._has_more():
                self._cut()
        self._looked_beyond = True
        return self._hint.valid  # else the page was damaged just now

    def _has_more(self) -> bool:
        """Whether something stands at the end, or, looked up once, anywhere behind it."""
        if self._looked_beyond:
            return self.journal.has_bytes_at(self.cursor)
        return self.journal.has_bytes_behind(self.cursor)

    def _cut(self) -> None:
        durable, _ = look_beyond(self.journal, self.cursor)
        if durable > self.cursor.lsn:  # the page is of an earlier moment, and this no torn tail
            self._hint.distrust()
        else:
            self.journal.cut(self.cursor)

    def _advance(self) -> None:
        written = self._hint.written or 0
        self._replica.advance(written)
        if self._log.mending.explains(self.state):
            self._start()
            raise rewriting_goes_on(self._log.disk.url)
        if self.cursor.lsn > written:
            # Whole frames of a writer that died before it could show them.
            self._hint.publish_written(self.cursor.lsn)
        if self.state.broken is not None:
            raise broken_end(self.state.broken)

    # --- writing there ------------------------------------------------------------------

    def write(self, commit: Framed, *, synced: bool) -> Cursor:
        """Write one commit, and show it; where the next one goes. Only in a block that
        holds the lock.

        Unless the files that it names are `synced`, a sync of the log must bring them to disk.
        """
        after = self.cursor
        assert self._is_held, "a commit is written under the append lock"
        if not synced:  # before, should this process die in between
            self._hint.note_staged_unsynced(after.lsn + 1)
        stamp = Stamp(
            after.next_time(self._log.environment.now_us()),
            self._log.environment.new_uuid().bytes,
            min(self._hint.synced or 0, after.lsn),
        )
        length = commit.placed.length
        frame = commit.frame(after, stamp, self._log.identity.seed)
        here = self.journal.append(after, frame, length)
        end = Cursor(
            after.lsn + 1, chain_of(stamp.nonce), stamp.time, here.file, here.position + length
        )
        self._hint.publish_written(end.lsn)  # now, since readers need as long to wake up
        try:
            self._replica.applied(end, commit.entries, here.position)
        except BaseException:  # interrupted: what is half applied must not be used
            self._start()
            raise
        return end
