"""A read-only handle that syncs what its writers don't: each commit once, unless it was lost."""

from __future__ import annotations

import errno

import pytest

from kmq_storage.errors import UnavailableError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.files.journal import Journal, StoredFrame
from tests.support.failing_disk import FailingDisk, drop_pages
from tests.support.storage import open_log, unit_of, values_of


def _reader(disk: FailingDisk) -> tuple[CommitLog, FailingDisk]:
    files = FailingDisk(disk.root)
    files.read_only = True
    return open_log(files, create=False), files


def _staged(log: CommitLog, disk: FailingDisk, value: bytes) -> int:
    """Append a commit that nobody syncs, and note that it names a file that isn't on disk."""
    commit = log.append([unit_of(disk, [value])])
    log._hint.note_staged_unsynced(commit.lsn)
    return commit.lsn


def test_frames_that_a_read_only_handle_has_synced_are_not_searched_again(
    log: CommitLog, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
):
    for number in range(100):
        _staged(log, disk, b"%d" % number)
    reader, _ = _reader(disk)
    reader.refresh()
    looked: list[int] = []
    next_frame = Journal.next_frame

    def counted(journal: Journal, cursor: Cursor, *, whole: bool = False) -> StoredFrame | None:
        looked.append(cursor.lsn)
        return next_frame(journal, cursor, whole=whole)

    monkeypatch.setattr(Journal, "next_frame", counted)
    assert reader.refresh().lsn < _staged(log, disk, b"last") == reader.refresh().lsn
    assert 1 <= len(looked) < 10


def test_a_commit_that_has_the_number_of_a_lost_one_is_synced_anew(
    log: CommitLog, disk: FailingDisk
):
    end = log._end.cursor.position
    lost = log.append([unit_of(disk, [b"second"])])
    reader, files = _reader(disk)
    assert values_of(reader) == [b"first", b"second"]

    disk.failing["sync"] = errno.EIO
    disk.after_failed_sync = lambda: drop_pages(disk, end)
    with pytest.raises(UnavailableError):
        log.sync(lost)
    disk.failing.clear()
    files.calls.clear()
    assert log.append([unit_of(disk, [b"again"])]).lsn == lost.lsn
    assert values_of(reader) == [b"first", b"again"]
    assert "sync" in files.calls
