"""Rewriting frames into fresh files after a failed sync.

The kernel may have dropped the pages that it could not write, and would then report success for a
second sync. So a file whose sync failed is never synced again.
"""

from __future__ import annotations

from contextlib import suppress

from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.files.hint import Hint
from kmq_storage.log.files.journal import Journal, StoredFrame


def write_again(journal: Journal, hint: Hint, synced: int) -> int:
    """Rewrite all frames after LSN `synced` into fresh files; returns the log's last LSN then.

    Only under the append lock. The log then ends before the first frame that can't be read back
    whole; `Hint.losses` tells the writers of this frame and later ones. Damage up to `synced`
    stays in its file.
    """
    cursor, frames = _read_unsynced(journal, synced)
    end = cursor.lsn + len(frames)
    written = hint.written
    lost = written is None or end < written
    # The loss is counted twice: first for the next writer, in case this process dies while it
    # replaces files, and afterwards for all that read the old files meanwhile.
    if lost:
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
    """The place after the last synced frame, and the whole frames that follow it."""
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
    """The place after the frame with this LSN; None when damage hides this place."""
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
