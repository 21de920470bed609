"""What readers of a store on a disk see: what is on it, or, for `durability="os"`, written."""

from __future__ import annotations

from collections.abc import Callable

from kmq_storage import limits
from kmq_storage.errors import UnavailableError
from kmq_storage.log.cut_off import is_cut_off
from kmq_storage.log.group_sync import GroupSync
from kmq_storage.log.journal import CollectedError, Cursor
from kmq_storage.log.log_on_disk import LogOnDisk
from kmq_storage.log.recovery import look_beyond
from kmq_storage.log.state import StoreState


class VisibleReplica:
    """A replica that goes as far as commits are visible; one thread at a time uses it."""

    def __init__(self, log: LogOnDisk, sync: GroupSync, *, durable: bool) -> None:
        self._log = log
        self._disk = log.disk
        self._hint = log.hint
        self._sync = sync
        self._durable = durable
        self.start()

    def start(self) -> None:
        """Begin anew at the newest checkpoint."""
        self._losses = self._hint.losses
        #: Where the log was judged to end without the page's word, and whether bytes stand there.
        self._judged: tuple[Cursor, bool] | None = None
        self._looked_beyond = False
        due = self._log.environment.monotonic() + limits.REBASE_SECONDS  # however long this takes
        self._replica = self._log.new_replica(indexed=True)
        self.state.rebase_time = due

    @property
    def state(self) -> StoreState:
        """What was read so far."""
        return self._replica.state

    @property
    def lsn(self) -> int:
        """The last commit that was read."""
        return self._replica.cursor.lsn

    def make_visible(self) -> None:
        """Read up to the last commit that is visible now."""
        while not self._hint.valid and not self._disk.read_only:
            self._log.mending.mend()
        if self._hint.losses != self._losses:
            self.start()
        written = self._hint.written
        if written is None and not self._disk.read_only:
            self.make_visible()  # the page was damaged just now
        elif written is None:  # read-only after a start of the machine: frames prove themselves
            self._advance_blindly()
        elif written > self.lsn:
            if self._durable and self._disk.read_only:
                written = self._sync.sync_read_only(written, self._replica.durable)
            elif self._durable and not self._is_durable(written):
                self.make_visible()
                return
            if written > self.lsn:
                self._replica.advance(written, written)

    def _is_durable(self, written: int) -> bool:
        """Bring the log to disk up to this commit; False when it was lost: nobody was promised it.

        UnavailableError when the disk fails.
        """
        try:
            self._sync.wait_durable(written)
        except UnavailableError:
            if self._hint.losses == self._losses:
                raise
            return False
        return True

    def make_sure(self) -> None:
        """Read again what may be gone: frames were lost to a failed sync while they were read."""
        while self._hint.losses != self._losses:
            self.make_visible()

    def rehearse(self) -> None:
        """Read the last frame once more, and do nothing with it."""
        self._replica.rehearse()

    def look_beyond(self, show_written: Callable[[], None]) -> None:
        """See what is written behind the end that the hint page tells; once after each start.

        The page of a file system that went down, and came back without a start of the machine, is
        older than the log. Else a writer is at it just now, or died.
        """
        if self._looked_beyond:
            return
        told = self._hint.written or 0
        if self.state.broken is None and self.lsn >= told and self._has_more():
            if self._disk.read_only:
                self._advance_blindly()
            else:
                show_written()
                self.make_visible()
        self._looked_beyond = True

    def _has_more(self) -> bool:
        try:
            return self._replica.journal.has_bytes_behind(self._replica.cursor)
        except CollectedError:  # meanwhile: the next refresh goes on from a checkpoint
            return False

    def _advance_blindly(self) -> None:
        while True:
            try:
                self._advance_to_proven_end()
                break
            except CollectedError:  # while its end was looked for: from a newer checkpoint
                self.start()
        if self._durable and self._sync.sync_read_only(self.lsn, self._replica.durable) < self.lsn:
            raise UnavailableError(
                f"store {self._disk.url}: a sync failed, and a read-only handle can't tell what of "
                "the log is on disk; open it for writing once",
                url=self._disk.url,
            )

    def _advance_to_proven_end(self) -> None:
        """Read frames while they are whole, and behind damage that later ones show to be some."""
        replica = self._replica
        replica.advance(self._hint.mark)
        if replica.state.broken is None and (known := self._known_beyond()) > self.lsn:
            replica.advance(known)
        if replica.state.broken is None and is_cut_off(self._disk, replica.journal, replica.cursor):
            replica.advance(self.lsn + 1)

    def _known_beyond(self) -> int:
        """Up to which commit the log is damaged where it seems to end; 0 when it just ends there.

        To look for later frames takes long: once, and then only where bytes are no frame.
        """
        journal, cursor = self._replica.journal, self._replica.cursor
        here = (cursor, journal.has_bytes_at(cursor))
        if here == self._judged or (self._judged is not None and not here[1]):
            return 0
        self._judged = here
        durable, last = look_beyond(journal, cursor)
        return max(durable, last) if durable > cursor.lsn else 0
