"""Checks of the log files: every frame follows its predecessor, and there are no other bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.format.frame import HEADER_BYTES, MAGIC
from kmq_storage.integrity.files.blank import first_mark
from kmq_storage.integrity.files.frames import check_frame, marks
from kmq_storage.integrity.report import Damage, Finding, Note
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.files.journal import CollectedError, Journal, StoredFrame
from kmq_storage.log.state.store_state import StoreState


class LogFilesCheck:
    """Checks the frames of a log up to the last commit that is known to exist."""

    def __init__(self, journal: Journal, state: StoreState, *, deep: bool) -> None:
        self._journal = journal
        self._state = state
        self._deep = deep
        broken = state.broken
        self._last = state.lsn if broken is None else max(state.lsn, broken.last_lsn)

    def findings(self) -> Iterator[Finding]:
        """The damage, file by file."""
        yield from self._frames()
        for first, size in self._journal.folder.resized().items():
            expected = self._journal.folder.file_bytes
            reason = f"the file has {size} bytes and should have {expected}"
            yield Damage(paths.log_file(first), reason=reason)

    def _frames(self) -> Iterator[Finding]:
        journal, cursor = self._journal, self._begin()
        while cursor.lsn < self._last:
            try:
                frame, reason = journal.try_next(cursor)
                here = cursor if frame is not None else journal.try_locate(cursor)
                found = None if frame is not None else journal.try_resync(cursor)
            except CollectedError:  # the first commits were collected meanwhile
                cursor = self._begin()
                continue
            if frame is not None:
                yield from self._between(cursor, frame)
                yield from self._frame(frame)
                cursor = frame.end
                continue
            last = self._last if found is None else found[1].header.lsn - 1
            file = paths.log_file(here.file)
            yield Damage(file, reason=f"commits {cursor.lsn + 1} to {last}: {reason}")
            if found is None:
                return
            cursor = found[0]
        with suppress(CollectedError):
            yield from self._behind(cursor)

    def _begin(self) -> Cursor:
        folder = self._journal.folder
        folder.look_again()
        return self._journal.start_of(folder.first_lsn())

    def _between(self, cursor: Cursor, frame: StoredFrame) -> Iterator[Finding]:
        """Check the end of a file: zeros, or frames that were rewritten into the next file."""
        if not self._deep or frame.file == cursor.file or not cursor.position:
            return
        log, file = self._journal.folder.open(cursor.file), paths.log_file(cursor.file)
        if log is None:
            return
        start, end = cursor.position, log.contents().size
        if end - start >= HEADER_BYTES and bytes(log.read(start, len(MAGIC))) == MAGIC:
            yield Note(file, f"its bytes from {start} on were written again behind the file")
        else:
            yield from marks(log.read, [(start, end)], file)

    def _frame(self, frame: StoredFrame) -> Iterator[Finding]:
        if self._deep:
            log, file = self._journal.folder.open(frame.file), paths.log_file(frame.file)
            assert log is not None, "the frame was read there"
            raw = pa.py_buffer(log.read(frame.position, frame.header.length))
            yield from check_frame(raw, frame.header, frame.entries(), file, self._state)

    def _behind(self, end: Cursor) -> Iterator[Finding]:
        """Behind the last commit nothing counts: a torn tail, or what is being written now."""
        if not self._deep or self._journal.try_next(end)[0] is not None:
            return
        here = self._journal.try_locate(end)
        log = self._journal.folder.open(here.file)
        mark = log and first_mark(log.read, here.position, log.contents().size)
        if mark is not None:
            yield Note(
                paths.log_file(here.file),
                f"byte {mark} behind the last commit is no commit's; a writer overwrites it",
            )
