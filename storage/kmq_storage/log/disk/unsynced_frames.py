"""Frames that nobody synced yet, with the staged files that they name."""

from __future__ import annotations

from kmq_storage.log.cursor import Cursor
from kmq_storage.log.files.hint import Hint
from kmq_storage.log.files.journal import Journal, StoredFrame


class UnsyncedFrames:
    """Finds and syncs them; each frame is read once for that."""

    def __init__(self, journal: Journal, hint: Hint) -> None:
        self._journal = journal
        self._hint = hint
        #: The place up to which frames were searched for staged files that need a sync.
        self._cursor = Cursor()

    def begin_anew(self) -> None:
        """Search again from the first frame that is not synced: the files were replaced."""
        self._cursor = Cursor()

    def staged(self, synced: int, target: int) -> set[str]:
        """The files that frames after `synced` name and that were staged without a sync.

        Those of a damaged frame are unknown. Nobody reads them, unless it is put back from a copy.
        """
        files: set[str] = set()
        if self._hint.staged_unsynced <= synced:
            return files
        cursor, start = self._cursor, self._journal.start_of(synced + 1)
        if cursor.lsn > synced or cursor.file < start.file:
            cursor = start
        while cursor.lsn < target and (frame := self._next(cursor)) is not None:
            cursor = frame.end
            if cursor.lsn > synced:
                files |= frame.staged_files()
        self._cursor = cursor
        return files

    def sync(self, synced: int, target: int, staged: set[str]) -> None:
        """Sync frames, and before them the staged files that they name.

        A staged file that is missing is not a failure of the disk. Its records are damage, which
        readers report, and all others stay. Only while the hint page is invalid may a reboot have
        lost the file; the log then ends before the frame that names it.
        """
        there = {file for file in staged if not self._hint.valid or self._journal.has_staged(file)}
        self._journal.sync_staged(there)
        self._journal.sync(synced + 1, target)

    def _next(self, cursor: Cursor) -> StoredFrame | None:
        """The frame after the cursor or, when damage hides it, the first one behind."""
        frame, _ = self._journal.try_next(cursor)
        found = None if frame else self._journal.try_resync(cursor)
        return found[1] if found else frame
