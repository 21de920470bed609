"""Recovery: after a start of the machine, find where the log ends and cut what was torn.

Runs once per boot and store, under the append lock, when the hint page is not of this boot
(or is damaged). See docs/design/commit-log.md for the crash table.
"""

from __future__ import annotations

import errno
from collections import deque

from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.log.hint import Hint
from kmq_storage.log.journal import Cursor, Journal, StoredFrame
from kmq_storage.log.rewriting import write_again


def recover(journal: Journal, hint: Hint) -> None:
    """Bring the log to a clean end, sync it, and rebuild the hint page.

    An invalid frame above everything that is known to have been durable is a torn tail and is
    cut. At or below it, it is damage: nothing is cut, and the mark stays so that readers
    report it.
    """
    journal.look_again()
    end, durable, staged = _find_end(journal)
    known = max(durable, hint.synced or 0)
    mark = max(known, hint.mark)
    if end.lsn >= mark:
        journal.cut(end)
    last = max(end.lsn, mark)
    if _try_sync(journal, hint, staged, last):
        hint.rebuild(last)
    elif end.lsn < known:
        raise OSError(errno.EIO, f"commit {end.lsn + 1} is damaged, and the disk fails to sync")
    else:
        hint.rebuild(write_again(journal, hint, known))


def _try_sync(journal: Journal, hint: Hint, staged: set[str], last: int) -> bool:
    if not hint.sync_failed:
        try:
            journal.sync_staged(staged)
            journal.sync(1, last)
        except OSError:
            hint.note_sync_failed(True)
    return not hint.sync_failed


def _find_end(journal: Journal) -> tuple[Cursor, int, set[str]]:
    """Where the last whole frame ends, the highest LSN that some frame knew to be durable.

    And the staged files of frames above it: they may not be on disk.
    """
    cursor, durable = Cursor(), 0
    unproven: deque[tuple[Cursor, StoredFrame]] = deque()
    while (frame := _try_next(journal, cursor)) is not None:
        durable = max(durable, frame.header.durable_lsn)
        unproven.append((cursor, frame))
        while unproven and unproven[0][1].header.lsn <= durable:
            unproven.popleft()
        cursor = frame.end
    durable = max(durable, _durable_beyond(journal, cursor))
    staged: set[str] = set()
    for before, frame in unproven:
        try:
            journal.verify_batches(frame)
        except InvalidFrameError:
            return before, durable, staged
        staged |= frame.staged_files()
    return cursor, durable, staged


def _durable_beyond(journal: Journal, end: Cursor) -> int:
    """What frames behind a bad place knew to be durable: writeback may keep n+2 and lose n+1."""
    durable, cursor = 0, end
    while (found := journal.try_resync(cursor)) is not None:
        frame: StoredFrame | None = found[1]
        while frame is not None:
            durable = max(durable, frame.header.durable_lsn)
            cursor = frame.end
            frame = _try_next(journal, cursor)
    return durable


def _try_next(journal: Journal, cursor: Cursor) -> StoredFrame | None:
    try:
        return journal.next_frame(cursor)
    except InvalidFrameError:
        return None
