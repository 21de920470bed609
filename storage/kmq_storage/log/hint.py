"""The hint page: how far the log is written and synced, as a speed-up that is never trusted.

Each word carries its own check bits, so garbage reads as "unknown". What a word says only
ever limits how far a reader looks, or raises an alarm when frames are missing that were
acknowledged; frames prove themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kmq_storage import paths
from kmq_storage.environment import Environment
from kmq_storage.format.checksum import checksum
from kmq_storage.objects.disk import Disk, SharedWords

BOOT, WRITTEN, SYNCED, ROLLS, LOSSES, STAGED, SYNC_FAILED, APPENDING, SYNCING = range(9)
WORDS = 9

_VALUE_BITS = 48
_VALUE_MASK = (1 << _VALUE_BITS) - 1
_WORD_MASK = (1 << 64) - 1
_MIX = 0x9E3779B97F4A7C15


def open_hint(disk: Disk, seed: int, environment: Environment) -> Hint:
    """The hint page of a store, made when it is missing."""
    words, boot_id = disk.open_words(paths.HINT, WORDS), disk.boot_id()
    return Hint(words, seed, boot_id, environment.monotonic)


class Hint:
    """Typed access to the words of one store's hint page."""

    def __init__(
        self, words: SharedWords, seed: int, boot_id: str, monotonic: Callable[[], float]
    ) -> None:
        self._words = words
        self._seed = seed
        self._monotonic = monotonic
        self._boot = checksum(boot_id.encode(), seed) | 1 << 40

    def _sealed(self, value: int) -> int:
        check = ((value + self._seed) * _MIX >> 32) & 0xFFFF
        return value | check << _VALUE_BITS

    def _load(self, index: int) -> int | None:
        word = self._words.load(index)
        value = word & _VALUE_MASK
        check = ((value + self._seed) * _MIX >> 32) & 0xFFFF  # as in `_sealed`; this is hot
        return value if word >> _VALUE_BITS == check else None

    @property
    def written(self) -> int | None:
        """The last LSN whose frame is written whole, if this is known for this boot."""
        return self._load(WRITTEN) if self._words.load(BOOT) == self._boot else None

    @property
    def synced(self) -> int | None:
        """The last LSN known to be on disk; also what an earlier boot left here."""
        return self._load(SYNCED)

    @property
    def valid(self) -> bool:
        """Whether a writer of this boot keeps this page up to date."""
        return self.written is not None and self.synced is not None

    @property
    def mark(self) -> int:
        """The last LSN that somebody was told is stored: losing it is damage, not a torn tail."""
        return max(self.written or 0, self.synced or 0)

    def publish_written(self, lsn: int) -> None:
        """Show a new frame to readers; called under the append lock."""
        self._words.store(WRITTEN, self._sealed(lsn))
        self._words.wake(WRITTEN)

    def announce(self) -> None:
        """Wake one of those who wait for a commit: waking up takes as long as writing it."""
        self._words.wake_one(WRITTEN)

    def publish_synced(self, lsn: int) -> None:
        """Show how far the log is on disk; called under the sync lock."""
        self._words.store(SYNCED, self._sealed(lsn))
        self._words.wake(SYNCED)

    def rebuild(self, lsn: int) -> None:
        """Start afresh after recovery: everything up to the LSN is written and synced."""
        self.publish_synced(lsn)
        self._words.store(WRITTEN, self._sealed(lsn))
        self.note_staged_unsynced(0)
        self._words.store(SYNCING, self._sealed(0))
        self.count_roll(lsn)  # whatever was told through the page may be lost with it
        self.count_loss(lsn)
        self._words.store(BOOT, self._boot)
        self._words.wake(WRITTEN)

    def distrust(self) -> None:
        """Have whoever writes next find out how far the log goes, as after a start of the machine.

        Under the append lock.
        """
        self._words.store(BOOT, 0)

    @property
    def rolls(self) -> int | None:
        """Changes whenever the set of log files changes; None when this is not known.

        Odd while it is being changed.
        """
        return self._words.load(ROLLS) if self._words.load(BOOT) == self._boot else None

    def count_roll(self, lsn: int) -> None:
        """Have every process look at the list of log files again: they changed at this LSN."""
        self._change(ROLLS, lsn, pending=False)

    @contextmanager
    def rolling(self, lsn: int) -> Iterator[None]:
        """Make, replace or remove log files at this LSN.

        Who looks in between looks again each time, also when this process dies in the middle.
        """
        self._change(ROLLS, lsn, pending=True)
        try:
            yield
        finally:
            self.count_roll(lsn)

    @property
    def staged_unsynced(self) -> int:
        """The last LSN that names files which were staged without sync."""
        known = self._load(STAGED)
        return _VALUE_MASK if known is None else known  # unknown: whoever syncs must look

    def note_staged_unsynced(self, lsn: int) -> None:
        """Have the next sync bring staged files to disk too; called under the append lock."""
        self._words.store(STAGED, self._sealed(lsn))

    @property
    def losses(self) -> int:
        """Changes whenever written frames were lost to a failed sync."""
        return self._words.load(LOSSES)

    def count_loss(self, lsn: int) -> None:
        """Have every writer check its own frames: those from this LSN on changed."""
        self._change(LOSSES, lsn, pending=False)

    def _change(self, index: int, lsn: int, *, pending: bool) -> None:
        # No counter, nor a function of what is there: a page that was damaged twice in the same
        # way would come to an earlier value again. Time does not, between two starts.
        now = int(self._monotonic() * 1e9)
        changed = (self._words.load(index) + lsn + 1 + now) * _MIX + 1
        self._words.store(index, changed & _WORD_MASK & ~1 | pending)

    @property
    def sync_failed(self) -> bool:
        """Whether a sync failed, and what it should have brought to disk is not yet rewritten."""
        return bool(self._load(SYNC_FAILED))

    def note_sync_failed(self, failed: bool) -> None:
        """Have nobody sync the same file again; called under the sync lock."""
        self._words.store(SYNC_FAILED, self._sealed(int(failed)))
        self._words.store(SYNCING, self._sealed(0))

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """Say that files are being synced, and not before it went well that this is over.

        Under the sync lock. Who dies in a sync, or is interrupted, takes with him how it ended.
        """
        self._words.store(SYNCING, self._sealed(1))
        yield
        self._words.store(SYNCING, self._sealed(0))

    @property
    def sync_unfinished(self) -> bool:
        """Whether somebody syncs just now, or began to and nobody knows how it ended."""
        return bool(self._load(SYNCING))

    def note_unfinished_sync(self) -> None:
        """Have a sync that nobody knows the end of count as failed; under the sync lock."""
        if self.sync_unfinished:
            self.note_sync_failed(True)

    def is_quiet_at(self, lsn: int, losses: int) -> bool:
        """Whether this is the last written LSN, no sync failed, and no frame was lost since."""
        load = self._words.load
        return (
            load(WRITTEN) == self._sealed(lsn)
            and load(LOSSES) == losses
            and load(BOOT) == self._boot
            and self.synced is not None
            and not self.sync_failed
        )

    @property
    def appending(self) -> int:
        """Odd while somebody holds the append lock; changes whenever it is given back."""
        return self._words.load(APPENDING)

    def note_appending(self) -> None:
        """The append lock is held from now on; called under it."""
        self._words.store(APPENDING, self._words.load(APPENDING) | 1)

    def note_appended(self) -> None:
        """The append lock is about to be given back; called under it."""
        self._words.store(APPENDING, (self._words.load(APPENDING) | 1) + 1 & _WORD_MASK)

    def wake_next_appender(self) -> None:
        """Have one of those who wait for the append lock try again."""
        self._words.wake_one(APPENDING)

    def sleep_while_appending(self, seen: int, timeout: float) -> None:
        """Sleep until the append lock is given back, at most `timeout` seconds."""
        self._words.wait(APPENDING, seen, timeout)

    def wake(self) -> None:
        """Have everybody who sleeps look again."""
        self._words.wake(WRITTEN)
        self._words.wake(SYNCED)

    def sleep_while_written(self, lsn: int, timeout: float) -> None:
        """Sleep while this is the last written LSN, at most `timeout` seconds."""
        self._words.wait(WRITTEN, self._sealed(lsn), timeout)

    def sleep_while_synced(self, lsn: int, timeout: float) -> None:
        """Sleep while this is the last synced LSN, at most `timeout` seconds."""
        self._words.wait(SYNCED, self._sealed(lsn), timeout)
