"""Reading past commits from their frames, independent of a handle's state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from kmq_storage import paths
from kmq_storage.errors import CorruptionError, OffsetOutOfRangeError, UnavailableError
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.log.commit_log import WrittenCommit
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk.log_on_disk import LogOnDisk
from kmq_storage.log.disk_errors import (
    collected,
    damaged_commit,
    lost_commit,
    rewriting_goes_on,
    unknown_commit,
)
from kmq_storage.log.files.journal import CollectedError, Journal, StoredFrame
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import Commit, to_datetime

#: Before all commits.
_NOWHERE = Cursor(-1)


class PastCommits:
    """Reads commits of one store's log by LSN."""

    def __init__(self, log: LogOnDisk) -> None:
        self._log = log
        self._url = log.disk.url
        #: Before the frames that were read last, and behind them: callers often begin there again.
        self._near: tuple[Cursor, ...] = ()

    def commits(
        self, start: int | None, state: StoreState, *, known: Cursor = _NOWHERE
    ) -> Iterator[Commit]:
        """The commits from LSN `start`, or from the first in the log, up to the state's last one.

        `known` is a place from which to read, if it comes before them. CorruptionError after the
        last one when more commits were acknowledged.
        """
        first = self._log.new_journal().folder.first_lsn()
        if start is not None and start < first and first > 1:
            raise collected(self._url, start, first)
        near = known, *self._near
        for frame in self.frames(max(start or 1, first), state.lsn, near=near):
            yield _commit_of(frame)
        if state.broken is not None:
            broken = state.broken
            raise damaged_commit(broken.file, broken.first_lsn, broken.reason)

    def written(self, lsn: int, losses: int) -> WrittenCommit:
        """The commit with this LSN, durable or not; `losses` is `Hint.losses` when it was written.

        CommitOutcomeUnknownError when frames were lost since. OffsetOutOfRangeError when the commit
        was collected; it was then on disk.
        """
        frame = None
        with suppress(UnavailableError):
            frame = next(self.frames(lsn, lsn), None)
        if frame is None or self._log.hint.losses != losses:
            raise unknown_commit(self._url, lsn)
        commit = _commit_of(frame)
        return WrittenCommit(
            commit.lsn, commit.time, commit.entries, chain=frame.header.chain, losses=losses
        )

    def check_survived(self, commit: WrittenCommit) -> None:
        """UnavailableError when a failed sync lost this commit.

        CommitOutcomeUnknownError when it was collected or damage hides it.
        """
        try:
            frames = self.frames(commit.lsn, commit.lsn)
            survived = any(frame.header.chain == commit.chain for frame in frames)
        except (OffsetOutOfRangeError, CorruptionError) as error:  # its LSN may be another's now
            raise unknown_commit(self._url, commit.lsn) from error
        if not survived:
            raise lost_commit(self._url, commit.lsn)

    def frames(
        self, first: int, last: int, *, near: Sequence[Cursor] = ()
    ) -> Iterator[StoredFrame]:
        """The frames with LSNs `first` to `last`, both included.

        `near`: places to read from. Frames before that need not prove to be there still.
        """
        if first > last:
            return
        journal = self._log.new_journal()
        before = cursor = _near_start(journal, first, near)
        try:
            while cursor.lsn < last and (frame := journal.next_frame(cursor)) is not None:
                before, cursor = (cursor if cursor.lsn < first else before), frame.end
                if cursor.lsn >= first:
                    self._near = before, cursor
                    yield frame
        except CollectedError as error:
            raise collected(self._url, first, journal.folder.first_lsn()) from error
        except InvalidFrameError as error:
            if self._log.mending.may_rewrite():
                raise rewriting_goes_on(self._url) from error
            raise damaged_commit(paths.log_file(cursor.file), cursor.lsn + 1, str(error)) from error


def _near_start(journal: Journal, first: int, near: Sequence[Cursor]) -> Cursor:
    """A cursor before the frame with this LSN: the nearest one whose frame still follows."""
    start = journal.start_of(first)
    for place in sorted(near, key=lambda place: place.lsn, reverse=True):
        if start.lsn <= place.lsn < first:
            with suppress(InvalidFrameError, CollectedError):
                if journal.next_frame(place) is not None:
                    return place
    return start


def _commit_of(frame: StoredFrame) -> Commit:
    """The commit of a frame."""
    time, place = to_datetime(frame.header.time), (frame.file, frame.position)
    return Commit(frame.header.lsn, time, tuple(frame.entries()), place)
