"""After a failed sync: the frames that may not be on disk are written again, into fresh files.

The kernel may have dropped the pages that it could not write, and would report success the
second time; so a file is never synced again after it failed.
"""

from __future__ import annotations

from contextlib import suppress

from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.log.hint import Hint
from kmq_storage.log.journal import Cursor, Journal, StoredFrame


def write_again(journal: Journal, hint: Hint, synced: int) -> int:
    """Bring every frame after the last synced one to disk in fresh files; the last LSN then.

    Only under the append lock. The log ends before the first frame that can't be read back
    whole; whoever wrote it, or one after it, is told by `Hint.losses`. Damage up to the last
    synced frame stays as it is, in its file.
    """
    cursor, frames = _read_unsynced(journal, synced)
    end = cursor.lsn + len(frames)
    written = hint.written
    lost = written is None or end < written
    if lost:  # before, for the next writer should this one die here; and after, for everybody
        hint.count_loss(end)
        hint.publish_written(end)
    journal.replace_from(cursor, frames)
    if lost:
        hint.count_loss(end)
    hint.publish_written(end)
    hint.publish_synced(end)
    hint.note_sync_failed(False)
    return end


def _read_unsynced(journal: Journal, synced: int) -> tuple[Cursor, list[bytes]]:
    """The place after the last synced frame, and the whole frames behind it."""
    start = _behind(journal, synced)
    if start is None:
        return Cursor(synced), []
    cursor, frames = start, list[bytes]()
    with suppress(InvalidFrameError):
        while (frame := journal.next_frame(cursor)) is not None:
            _stage_again(journal, frame)
            journal.verify_batches(frame)
            frames.append(journal.raw(frame).to_pybytes())
            cursor = frame.end
    return start, frames


def _behind(journal: Journal, lsn: int) -> Cursor | None:
    """The place after a frame; None where damage hides it and the frame behind it, too."""
    cursor = journal.start_of(lsn + 1)
    while cursor.lsn < lsn:
        frame, _ = journal.try_next(cursor)
        found = (frame.end, frame) if frame else journal.try_resync(cursor)
        if found is None or found[0].lsn > lsn:
            return None
        cursor = found[0]
    return cursor


def _stage_again(journal: Journal, frame: StoredFrame) -> None:
    try:
        journal.stage_again(frame.staged_files())
    except FileNotFoundError:
        raise InvalidFrameError("a staged file is missing") from None
