"""A replica: a state of the store that is kept up to date by reading frames in order."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import count

from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.format.entries import Entry
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.log.checkpoints.checkpoint import starting_point
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.files.journal import CollectedError, Journal, StoredFrame
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import LogDamage
from kmq_storage.objects.disk import Disk

#: So many frames are read at once, some 0.5 ms of work.
_PIECE = 32
#: Shorter than any sleep takes (seconds): long enough for another thread to take over.
_MOMENT = 20e-6


class Replica:
    """A state, and the cursor up to which its frames were read."""

    def __init__(self, disk: Disk, journal: Journal, *, indexed: bool) -> None:
        self.journal = journal
        self._disk = disk
        self._indexed = indexed
        #: False while a commit is being applied; if it stays False, an interruption came between.
        self._whole = True
        self._begin()

    def _begin(self) -> None:
        """Begin at the newest checkpoint, or at the first commit when there is none."""
        losses = self.journal.hint.losses  # read first: those before it are of no frame read below
        checkpoint = starting_point(self._disk, self.journal)
        if checkpoint is None:
            self.state = StoreState(Manifest(self._disk, ()) if self._indexed else None)
            self.cursor = Cursor()
        else:
            self.state = checkpoint.state(self._disk, indexed=self._indexed)
            self.cursor = checkpoint.cursor
        self.state.losses = losses
        #: The place of the checkpoint.
        self.begun = self.cursor
        #: The highest LSN that the checkpoint and the frames read so far tell to be on disk.
        self.durable = self.cursor.lsn
        #: The place where the last frame that was read begins.
        self._before = self.cursor
        self._whole = True

    def follow(self, limit: int) -> bool:
        """Read valid frames up to LSN `limit`; returns whether that was reached.

        This needs no lock: an invalid frame only ends the reading, since another process may be
        replacing files after a failed sync.
        """
        if not self._whole:
            self._begin()
        try:
            while self.cursor.lsn < limit:
                if (frame := self.journal.next_frame(self.cursor)) is None:
                    return False
                self._apply(frame)
        except CollectedError:
            self._begin()  # from a newer checkpoint
            return self.follow(limit)
        except InvalidFrameError:
            return False
        return True

    def advance(self, proven: int, limit: int | None = None) -> None:
        """Read frames up to LSN `limit`, or all frames.

        Up to LSN `proven`, frames were acknowledged: a missing or invalid one is damage. Beyond it,
        frames are verified with their batches, and the first invalid one ends the log.
        """
        if not self._whole:
            self._begin()
        self.state.broken = None
        looked_again, read = False, count(1)
        while limit is None or self.cursor.lsn < limit:
            acknowledged = self.cursor.lsn < proven
            try:
                frame, reason = self.journal.try_next(self.cursor, whole=not acknowledged)
                if frame is not None:
                    self._apply(frame)
                    if not next(read) % _PIECE:
                        _let_others_run()
                elif not looked_again and (acknowledged or self.journal.folder.blind):
                    looked_again = True  # before calling it damage, as the hint page may be lost
                    self.journal.folder.look_again()
                elif not (acknowledged and self._pass_over(reason)):
                    return
            except CollectedError:
                self._begin()  # from a newer checkpoint
                looked_again = False

    def _apply(self, frame: StoredFrame) -> None:
        header, entries, end = frame.header, frame.entries(), frame.end
        self._whole = False
        self.state.apply(header.lsn, header.time, entries, file=frame.file, position=frame.position)
        self._before, self.cursor, self._whole = self.cursor, end, True
        self.durable = max(self.durable, header.durable_lsn)

    def rehearse(self) -> None:
        """Read the last frame again and discard it, to warm the processor's caches."""
        with suppress(InvalidFrameError, CollectedError):
            frame = self.journal.next_frame(self._before)
            if frame is not None:
                frame.entries()

    def applied(self, end: Cursor, entries: list[Entry], position: int) -> None:
        """Apply a commit that this process wrote itself, without reading it back."""
        assert end.lsn == self.cursor.lsn + 1, "LSNs are contiguous"
        self.state.apply(end.lsn, end.time, entries, file=end.file, position=position)
        self.cursor = end

    def _pass_over(self, reason: str) -> bool:
        """Skip damaged frames if a later one is valid; otherwise the state's end is broken."""
        file = paths.log_file(self.journal.try_locate(self.cursor).file)
        found = self.journal.try_resync(self.cursor)
        if found is None:
            first = self.cursor.lsn + 1
            self.state.broken = LogDamage(file, reason, first, first)
            return False
        before, frame = found
        self.state.note_damage(LogDamage(file, reason, self.cursor.lsn + 1, frame.header.lsn - 1))
        self.cursor = before
        return True


def _let_others_run() -> None:
    """Let threads that wait for this one go on; Python alone would make them wait for 5 ms."""
    if threading.active_count() > 1:
        SYSTEM.sleep(_MOMENT)
