"""Recovery: after a reboot, find where the log ends and cut a torn tail.

It runs once per boot and store, under the append lock, when the hint page is not of this boot or
is damaged. docs/design/commit-log.md has the crash table.
"""

from __future__ import annotations

import errno
from collections import deque

from kmq_storage import paths
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.log.checkpoints.checkpoint import starting_point
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.files.cut_off import is_cut_off
from kmq_storage.log.files.hint import Hint
from kmq_storage.log.files.journal import Journal, StoredFrame
from kmq_storage.log.files.rewriting import write_again
from kmq_storage.objects.disk import Disk


def recover(disk: Disk, journal: Journal, hint: Hint) -> None:
    """Bring the log to a clean end, sync it, and rebuild the hint page.

    Commits before the newest checkpoint are known to be on disk. An invalid frame above the last
    LSN that is known to have been durable is a torn tail and is cut. At or below this LSN, it is
    damage: nothing is cut, and the LSN goes into the hint page, so that readers report the damage.
    """
    journal.folder.look_again()
    checkpoint = starting_point(disk, journal)
    start = checkpoint.cursor if checkpoint is not None else Cursor()
    end, durable, staged = _find_end(journal, start)
    durable_beyond, last_beyond = look_beyond(journal, end)
    known = max(durable, durable_beyond, hint.synced or 0)
    if is_cut_off(disk, journal, end):
        known = max(known, end.lsn + 1)
    elif end.lsn and not disk.exists(paths.BEGUN):  # an older version began the log
        journal.note_begun()
    last = max(known, hint.mark)
    if end.lsn >= last:
        journal.cut(end)
        if end.lsn > known:
            _bring_to_disk(journal, hint, staged, (known + 1, end))
        hint.note_sync_failed(False)
        hint.rebuild(end.lsn)
        return
    last = max(last, last_beyond)  # whole frames behind the damage count, too
    if _try_sync(journal, hint, staged, (start.lsn + 1, last)):
        hint.rebuild(last)
    else:
        hint.rebuild(write_again(journal, hint, known))


def _bring_to_disk(
    journal: Journal, hint: Hint, staged: set[str], span: tuple[int, Cursor]
) -> None:
    """Make frames from LSN `first` to the log's end durable, with the staged files they name.

    The files are rewritten rather than synced: an earlier sync may have failed, and the note of it
    may be lost with the hint page. They are synced only when the disk has no room to rewrite them.
    """
    first, end = span
    try:
        journal.stage_again(staged)
        journal.renew(first, end)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not full or not _try_sync(journal, hint, staged, (first, end.lsn)):
            raise


def mend_if_asked(disk: Disk, journal: Journal, hint: Hint) -> None:
    """Recover the log, or finish a failed sync, if the hint page asks for it; under both locks."""
    hint.note_unfinished_sync()
    if not hint.valid:
        recover(disk, journal, hint)
    elif hint.sync_failed:
        finish_sync(disk, journal, hint)


def finish_sync(disk: Disk, journal: Journal, hint: Hint) -> None:
    """Rewrite the frames that a failed sync may have left out; under the append lock."""
    synced = hint.synced
    if synced is not None and hint.valid:
        write_again(journal, hint, synced)
    else:  # the page is lost, and with it the synced LSN and the note that a sync failed
        hint.note_sync_failed(True)
        recover(disk, journal, hint)


def _try_sync(journal: Journal, hint: Hint, staged: set[str], span: tuple[int, int]) -> bool:
    if not hint.sync_failed:
        try:
            journal.sync_staged(staged)
            journal.sync(*span)
        except OSError:
            hint.note_sync_failed(True)
    return not hint.sync_failed


def _find_end(journal: Journal, start: Cursor) -> tuple[Cursor, int, set[str]]:
    """Find the end of the last whole frame.

    Returns also the highest LSN that a frame tells to be durable, and the staged files named by
    frames above it, which may not be on disk.
    """
    cursor, durable = start, start.lsn
    unproven: deque[tuple[Cursor, StoredFrame]] = deque()
    while (frame := journal.try_next(cursor)[0]) is not None:
        durable = max(durable, frame.header.durable_lsn)
        unproven.append((cursor, frame))
        while unproven and unproven[0][1].header.lsn <= durable:
            unproven.popleft()
        cursor = frame.end
    staged: set[str] = set()
    for before, frame in unproven:
        if not _is_whole(journal, frame):
            return before, durable, staged
        staged |= frame.staged_files()
    return cursor, durable, staged


def look_beyond(journal: Journal, end: Cursor) -> tuple[int, int]:
    """Read frames behind an invalid one, since a crash may lose frame n+1 and keep frame n+2.

    Returns the highest LSN that they tell to be durable, and the LSN of the last whole frame.
    """
    durable, last, cursor = 0, 0, end
    while (found := journal.try_resync(cursor)) is not None:
        frame: StoredFrame | None = found[1]
        while frame is not None:
            durable = max(durable, frame.header.durable_lsn)
            last = frame.header.lsn if _is_whole(journal, frame) else last
            cursor = frame.end
            frame, _ = journal.try_next(cursor)
    return durable, last


def _is_whole(journal: Journal, frame: StoredFrame) -> bool:
    try:
        journal.verify_batches(frame)
    except InvalidFrameError:
        return False
    return True
