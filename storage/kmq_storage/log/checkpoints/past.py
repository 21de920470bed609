"""What was so before the commits that are still in the log, as the oldest checkpoint knows it."""

from __future__ import annotations

from contextlib import suppress

from kmq_storage.cached import cached_property
from kmq_storage.errors import CorruptionError
from kmq_storage.log.checkpoints.checkpoint import checkpoints, read_checkpoint
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.files import Files


class Past:
    """The state at the oldest checkpoint, for one who reads the log from its beginning."""

    def __init__(self, files: Files) -> None:
        self._files = files
        #: The first commit that was found in the log.
        self.first_lsn = 0

    def before(self, lsn: int) -> StoreState | None:
        """A state before a commit, if all commits behind that state are in the log."""
        state = self._oldest
        return state if state is not None and state.lsn < lsn else None

    @cached_property
    def _oldest(self) -> StoreState | None:
        for lsn, digest in reversed(checkpoints(self._files)):
            if lsn + 1 < self.first_lsn:
                continue  # a collector is about to delete it
            with suppress(CorruptionError, FileNotFoundError):
                return read_checkpoint(self._files, lsn, digest).state(self._files, indexed=False)
        return None
