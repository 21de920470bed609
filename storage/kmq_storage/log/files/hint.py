"""The hint page: words in shared memory that tell how far the log is written and synced.

The page speeds things up but is never trusted: frames prove themselves. A word only limits how
far a reader looks, or raises an alarm when acknowledged frames are missing. Words with a value
carry check bits, so garbage reads as "unknown".
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
    """The hint page of a store; it is created when it is missing."""
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
        """The last LSN whose frame is completely written; None if unknown since this boot."""
        return self._load(WRITTEN) if self._words.load(BOOT) == self._boot else None

    @property
    def synced(self) -> int | None:
        """The last LSN known to be on disk; a value of an earlier boot still holds."""
        return self._load(SYNCED)

    @property
    def valid(self) -> bool:
        """Whether the page was rebuilt in this boot, so that writers keep it up to date."""
        return self.written is not None and self.synced is not None

    @property
    def mark(self) -> int:
        """The last LSN that may have been acknowledged: losing it is damage, not a torn tail."""
        return max(self.written or 0, self.synced or 0)

    def publish_written(self, lsn: int) -> None:
        """Show a new frame to readers; called under the append lock."""
        self._words.store(WRITTEN, self._sealed(lsn))
        self._words.wake(WRITTEN)

    def announce(self) -> None:
        """Wake one waiting reader before the commit, since waking takes as long as writing."""
        self._words.wake_one(WRITTEN)

    def publish_synced(self, lsn: int) -> None:
        """Show how far the log is on disk; called under the sync lock."""
        self._words.store(SYNCED, self._sealed(lsn))
        self._words.wake(SYNCED)

    def rebuild(self, lsn: int) -> None:
        """Initialise the page after recovery: everything up to the LSN is written and synced."""
        self.publish_synced(lsn)
        self._words.store(WRITTEN, self._sealed(lsn))
        self.note_staged_unsynced(0)
        self._words.store(SYNCING, self._sealed(0))
        self.count_roll(lsn)  # changes that the lost page told of must be noticed, too
        self.count_loss(lsn)
        self._words.store(BOOT, self._boot)
        self._words.wake(WRITTEN)

    def distrust(self) -> None:
        """Invalidate the page, so that the next writer recovers the log as after a reboot.

        Under the append lock.
        """
        self._words.store(BOOT, 0)

    @property
    def rolls(self) -> int | None:
        """A value that changes whenever the set of log files changes; None when unknown.

        It is odd while a process is changing the files.
        """
        return self._words.load(ROLLS) if self._words.load(BOOT) == self._boot else None

    def count_roll(self, lsn: int) -> None:
        """Make every process list the log files again, which changed at this LSN."""
        self._change(ROLLS, lsn, pending=False)

    @contextmanager
    def rolling(self, lsn: int) -> Iterator[None]:
        """Mark the log files as changing, for a block that creates, replaces or removes some.

        Meanwhile every look lists them again, and also after this process died in the block.
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
        return _VALUE_MASK if known is None else known  # unknown: the next sync must look

    def note_staged_unsynced(self, lsn: int) -> None:
        """Make the next sync also sync staged files; called under the append lock."""
        self._words.store(STAGED, self._sealed(lsn))

    @property
    def losses(self) -> int:
        """A value that changes whenever a failed sync lost written frames."""
        return self._words.load(LOSSES)

    def count_loss(self, lsn: int) -> None:
        """Make every writer check its own frames: those after this LSN may be lost."""
        self._change(LOSSES, lsn, pending=False)

    def _change(self, index: int, lsn: int, *, pending: bool) -> None:
        # Neither a counter nor a function of the old value alone: a page that is damaged twice in
        # the same way would then return to an earlier value. Monotonic time does not within a boot.
        now = int(self._monotonic() * 1e9)
        changed = (self._words.load(index) + lsn + 1 + now) * _MIX + 1
        self._words.store(index, changed & _WORD_MASK & ~1 | pending)

    @property
    def sync_failed(self) -> bool:
        """Whether a sync failed and its frames have not been rewritten yet."""
        return bool(self._load(SYNC_FAILED))

    def note_sync_failed(self, failed: bool) -> None:
        """Note whether files failed to sync and must not be synced again; under the sync lock."""
        self._words.store(SYNC_FAILED, self._sealed(int(failed)))
        self._words.store(SYNCING, self._sealed(0))

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """Mark a sync as under way; the mark is cleared only when the block succeeds.

        Under the sync lock. When the process dies in the sync or is interrupted, the result of the
        sync is lost, and the mark tells so.
        """
        self._words.store(SYNCING, self._sealed(1))
        yield
        self._words.store(SYNCING, self._sealed(0))

    @property
    def sync_unfinished(self) -> bool:
        """Whether a sync is under way, or was left with an unknown result."""
        return bool(self._load(SYNCING))

    def note_unfinished_sync(self) -> None:
        """Treat a sync with an unknown result as failed; called under the sync lock."""
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
        """Odd while the append lock is held; changes whenever it is released."""
        return self._words.load(APPENDING)

    def note_appending(self) -> None:
        """Note that the append lock is held; called under it."""
        self._words.store(APPENDING, self._words.load(APPENDING) | 1)

    def note_appended(self) -> None:
        """Note that the append lock is about to be released; called under it."""
        self._words.store(APPENDING, (self._words.load(APPENDING) | 1) + 1 & _WORD_MASK)

    def wake_next_appender(self) -> None:
        """Wake one of the threads that wait for the append lock."""
        self._words.wake_one(APPENDING)

    def sleep_while_appending(self, seen: int, timeout: float) -> None:
        """Sleep until the append lock is released, at most `timeout` seconds."""
        self._words.wait(APPENDING, seen, timeout)

    def wake(self) -> None:
        """Wake every thread that sleeps until a commit is written or synced."""
        self._words.wake(WRITTEN)
        self._words.wake(SYNCED)

    def sleep_while_written(self, lsn: int, timeout: float) -> None:
        """Sleep while this is the last written LSN, at most `timeout` seconds."""
        self._words.wait(WRITTEN, self._sealed(lsn), timeout)

    def sleep_while_synced(self, lsn: int, timeout: float) -> None:
        """Sleep while this is the last synced LSN, at most `timeout` seconds."""
        self._words.wait(SYNCED, self._sealed(lsn), timeout)
