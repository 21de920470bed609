"""The visible end of a log on a disk: durable commits, or with `durability="os"` all written."""

from __future__ import annotations

from collections.abc import Callable

from kmq_storage import limits
from kmq_storage.errors import UnavailableError
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk.group_sync import GroupSync
from kmq_storage.log.disk.log_on_disk import LogOnDisk
from kmq_storage.log.disk.recovery import look_beyond
from kmq_storage.log.files.cut_off import is_cut_off
from kmq_storage.log.files.journal import CollectedError
from kmq_storage.log.state.store_state import StoreState


class VisibleReplica:
    """A replica that follows the log up to the last visible commit; for one thread at a time."""

    def __init__(self, log: LogOnDisk, sync: GroupSync, *, durable: bool) -> None:
        self._log = log
        self._disk = log.disk
        self._hint = log.hint
        self._sync = sync
        self._durable = durable
        self.begin_anew()

    def begin_anew(self) -> None:
        """Begin anew at the newest checkpoint."""
        self._losses = self._hint.losses
        #: Without a hint page: the place where the log was found to end, and whether there are
        #: bytes behind it.
        self._judged: tuple[Cursor, bool] | None = None
        self._looked_beyond = False
        due = self._log.environment.monotonic() + limits.REBASE_SECONDS  # from before the reading
        self._replica = self._log.new_replica(indexed=True)
        self.state.rebase_time = due

    @property
    def state(self) -> StoreState:
        """The state at the last commit that was read."""
        return self._replica.state

    @property
    def lsn(self) -> int:
        """The last commit that was read."""
        return self._replica.cursor.lsn

    @property
    def begun(self) -> Cursor:
        """The place of the checkpoint from which the reading began."""
        return self._replica.begun

    def make_visible(self) -> None:
        """Read up to the last commit that is visible now."""
        while not self._hint.valid and not self._disk.read_only:
            self._log.mending.mend()
        if self._hint.losses != self._losses:
            self.begin_anew()
        written = self._hint.written
        if written is None and not self._disk.read_only:
            self.make_visible()  # the page was damaged meanwhile
        elif written is None:  # read-only after a reboot: only the frames tell how far the log goes
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
        """Sync the log up to this commit; False when it was lost before it was acknowledged.

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
        """Read again when a failed sync lost frames while they were read."""
        while self._hint.losses != self._losses:
            self.make_visible()

    def rehearse(self) -> None:
        """Read the last frame again and discard it, to warm the processor's caches."""
        self._replica.rehearse()

    def look_beyond(self, show_written: Callable[[], None]) -> None:
        """Look once after each start for frames behind the end that the hint page tells.

        The page is older than the log when the file system failed and came back without a reboot.
        Otherwise, a writer is just writing there, or has died.
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
        except CollectedError:  # the next refresh goes on from a checkpoint
            return False

    def _advance_blindly(self) -> None:
        while True:
            try:
                self._advance_to_proven_end()
                break
            except CollectedError:  # collected meanwhile: begin at a newer checkpoint
                self.begin_anew()
        if self._durable and self._sync.sync_read_only(self.lsn, self._replica.durable) < self.lsn:
            raise UnavailableError(
                f"store {self._disk.url}: a sync failed, and a read-only handle can't tell what of "
                "the log is on disk; open it for writing once",
                url=self._disk.url,
            )

    def _advance_to_proven_end(self) -> None:
        """Read all whole frames; go on behind damage where later frames prove that it is damage."""
        replica = self._replica
        replica.advance(self._hint.mark)
        if replica.state.broken is None and (known := self._known_beyond()) > self.lsn:
            replica.advance(known)
        if replica.state.broken is None and is_cut_off(self._disk, replica.journal, replica.cursor):
            replica.advance(self.lsn + 1)

    def _known_beyond(self) -> int:
        """The last commit of a damaged range at the log's apparent end; 0 if the log ends there.

        Searching for later frames takes long. It is done once, and again only when there are bytes
        at a new place that are no frame.
        """
        journal, cursor = self._replica.journal, self._replica.cursor
        here = (cursor, journal.has_bytes_at(cursor))
        if here == self._judged or (self._judged is not None and not here[1]):
            return 0
        self._judged = here
        durable, last = look_beyond(journal, cursor)
        return max(durable, last) if durable > cursor.lsn else 0
