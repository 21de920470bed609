"""A disk that fails: nothing unacknowledged is claimed, nothing acknowledged is lost."""

from __future__ import annotations

import errno
import os

import pytest

from kmq_storage import limits
from kmq_storage.errors import CommitOutcomeUnknownError, InvalidRequestError, UnavailableError
from kmq_storage.format.entries import ProducerEntry
from kmq_storage.integrity.verify import verify
from kmq_storage.log.binding.binding import DuplicateCommitError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.files.hint import Hint
from kmq_storage.objects.disk import LogFile
from tests.simulation.mutants import forgets_who_died_in_a_sync, reads_back_nothing
from tests.support.dying_disk import Died, die
from tests.support.failing_disk import FailingDisk, drop_pages
from tests.support.storage import (
    FILE_BYTES,
    make_topic,
    open_folder,
    open_log,
    send,
    unit_of,
    values_of,
)


def _others(disk: FailingDisk) -> list[bytes]:
    return values_of(open_folder(disk.root))


def test_a_failed_sync_is_not_tried_again_but_written_into_a_fresh_file(
    log: CommitLog, disk: FailingDisk
):
    commit = log.append([unit_of(disk, [b"second"])])
    disk.failing["sync"] = errno.EIO
    disk.calls.clear()
    log.sync(commit)
    assert disk.calls.count("sync") == 1
    assert disk.calls.count("replace") == 1
    assert disk.list("log") == [f"{1:020d}.log", f"{3:020d}.log", "hint"]
    del disk.failing["sync"]
    send(log, b"third")
    assert values_of(log) == _others(disk) == [b"first", b"second", b"third"]


def test_that_no_frame_is_written_again_is_found_when_it_is_planted(
    log: CommitLog, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
):
    reads_back_nothing(monkeypatch)
    with pytest.raises(UnavailableError, match="lost commit 3"):
        test_a_failed_sync_is_not_tried_again_but_written_into_a_fresh_file(log, disk)


def test_a_handle_that_had_the_old_file_open_goes_on_in_the_fresh_one(
    log: CommitLog, disk: FailingDisk
):
    other = open_folder(disk.root)
    commit = log.append([unit_of(disk, [b"second"])])
    assert other.written_state().lsn == commit.lsn
    disk.failing["sync"] = errno.EIO
    log.sync(commit)
    del disk.failing["sync"]
    send(other, b"third")
    send(log, b"fourth")
    assert values_of(other) == values_of(log) == [b"first", b"second", b"third", b"fourth"]


def test_frames_that_the_kernel_dropped_are_reported_lost_and_their_numbers_used_again(
    log: CommitLog, disk: FailingDisk
):
    end = log._end.cursor.position
    commit = log.append([unit_of(disk, [b"second"])])

    def drop() -> None:
        drop_pages(disk, end)

    disk.failing["sync"], disk.after_failed_sync = errno.EIO, drop
    with pytest.raises(UnavailableError, match=f"lost commit {commit.lsn}") as caught:
        log.sync(commit)
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    disk.failing.clear()
    assert send(log, b"again").lsn == commit.lsn
    assert values_of(log) == _others(disk) == [b"first", b"again"]


def test_a_reader_that_meets_a_failing_sync_goes_on_without_the_frames_that_are_lost(
    log: CommitLog, disk: FailingDisk
):
    end = log._end.cursor.position
    log.append([unit_of(disk, [b"second"])])

    def drop() -> None:
        drop_pages(disk, end)
        disk.failing.clear()

    disk.failing["sync"], disk.after_failed_sync = errno.EIO, drop
    assert values_of(log) == [b"first"]
    assert values_of(log) == _others(disk) == [b"first"]


def test_a_read_only_handle_whose_sync_failed_never_believes_the_next_one(
    log: CommitLog, disk: FailingDisk
):
    log.append([unit_of(disk, [b"second"])])
    files = FailingDisk(disk.root)
    files.read_only = True
    files.failing["sync"] = errno.EIO
    reader = open_log(files, create=False)
    assert values_of(reader) == [b"first"]
    files.failing.clear()  # as the kernel, which tells of lost pages once
    assert values_of(reader) == [b"first"]
    assert files.calls.count("sync") == 1
    send(log, b"third")
    assert values_of(reader) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("known", ["failed", "unfinished"])
def test_a_read_only_handle_believes_no_sync_of_its_own_after_one_that_others_lost(
    log: CommitLog, disk: FailingDisk, known: str
):
    log.append([unit_of(disk, [b"second"])])
    if known == "failed":
        log._hint.note_sync_failed(True)
    else:
        log._hint.syncing().__enter__()  # and died in it
    files = FailingDisk(disk.root)
    files.read_only = True
    reader = open_log(files, create=False)
    assert values_of(reader) == [b"first"]
    assert "sync" not in files.calls
    assert not reader.wait(reader.state.lsn, 0.05)
    send(log, b"third")
    assert reader.wait(reader.state.lsn, 10)
    assert values_of(reader) == [b"first", b"second", b"third"]


def test_a_read_only_handle_believes_no_sync_during_which_another_failed(
    log: CommitLog, disk: FailingDisk
):
    class Meanwhile(FailingDisk):
        def check(self, call: str) -> None:
            super().check(call)
            if call == "sync":
                log._hint.note_sync_failed(True)

    log.append([unit_of(disk, [b"second"])])
    files = Meanwhile(disk.root)
    files.read_only = True
    assert values_of(open_log(files, create=False)) == [b"first"]


def test_a_lost_commit_is_lost_for_its_writer_though_its_number_is_durable_by_now(
    log: CommitLog, disk: FailingDisk
):
    end = log._end.cursor.position
    commit = log.append([unit_of(disk, [b"second"])])
    other = open_folder(disk.root)
    drop_pages(disk, end)
    other._hint.note_sync_failed(True)  # another process met the failure, and repairs it
    assert send(other, b"instead").lsn == commit.lsn
    with pytest.raises(UnavailableError, match=f"lost commit {commit.lsn}"):
        log.sync(commit)
    assert values_of(log) == [b"first", b"instead"]


def test_a_failed_sync_that_the_damaged_page_forgot_is_not_tried_again(
    log: CommitLog, disk: FailingDisk
):
    log.append([unit_of(disk, [b"second"])])
    before = os.stat(disk.root / "log" / f"{1:020d}.log").st_ino
    (disk.root / "log" / "hint").write_bytes(bytes(64))  # and the process that knew it is dead
    disk.calls.clear()
    assert values_of(open_log(disk, create=False)) == [b"first", b"second"]
    assert "sync" not in disk.calls
    assert os.stat(disk.root / "log" / f"{1:020d}.log").st_ino != before


def test_who_dies_in_a_sync_leaves_it_to_be_taken_for_failed(log: CommitLog, disk: FailingDisk):
    commit = log.append([unit_of(disk, [b"second"])])
    disk.failing["sync"], disk.after_failed_sync = errno.EIO, die
    with pytest.raises(Died):
        log.sync(commit)
    disk.failing.clear()
    disk.calls.clear()
    before = os.stat(disk.root / "log" / f"{1:020d}.log").st_ino
    other = open_log(disk, create=False)
    other.sync(commit.lsn)
    assert "sync" not in disk.calls
    assert disk.calls.count("replace") == 1
    send(other, b"third")
    assert "sync" in disk.calls  # the fresh files
    assert values_of(log) == _others(disk) == [b"first", b"second", b"third"]
    assert os.stat(disk.root / "log" / f"{1:020d}.log").st_ino == before  # all of it was on disk
    assert verify(other, deep=True).ok  # though the second commit stands in both files


def test_that_this_sync_is_forgotten_is_found_when_it_is_planted(
    log: CommitLog, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
):
    forgets_who_died_in_a_sync(monkeypatch)
    with pytest.raises(AssertionError):
        test_who_dies_in_a_sync_leaves_it_to_be_taken_for_failed(log, disk)


def test_frames_that_were_dropped_under_a_writer_that_died_are_no_damage(
    log: CommitLog, disk: FailingDisk
):
    end = log._end.cursor.position
    commit = log.append([unit_of(disk, [b"second"])])

    def drop_and_die() -> None:
        drop_pages(disk, end)
        raise Died

    disk.failing["sync"], disk.after_failed_sync = errno.EIO, drop_and_die
    with pytest.raises(Died):
        log.sync(commit)
    disk.failing.clear()
    other = open_log(disk, create=False)
    with pytest.raises(UnavailableError, match="written again"):
        send(other, b"too early")
    assert send(other, b"instead").lsn == commit.lsn
    assert values_of(other) == _others(disk) == [b"first", b"instead"]


def test_who_looked_while_a_log_file_was_made_by_one_that_died_finds_it(
    log: CommitLog, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
):
    other = open_folder(disk.root)
    made = FailingDisk.open_log

    def look_make_and_die(disk: FailingDisk, path: str, size: int, *, create: bool) -> LogFile:
        if create:
            other.written_state()
            other._end.journal.folder.look_again()  # the page says already that files change
        file = made(disk, path, size, create=create)
        if create:
            patch.setattr(Hint, "count_roll", die)
            raise Died
        return file

    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(FailingDisk, "open_log", look_make_and_die)
        send(log, b"x" * (FILE_BYTES - 1_000))
    send(other, b"second")
    assert values_of(other) == _others(disk) == [b"first", b"second"]


def test_no_number_is_given_out_again_while_somebody_syncs(
    log: CommitLog, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "LOCK_TIMEOUT", 0.05)
    other = open_log(disk, create=False)

    def damage_the_page_and_write() -> None:
        (disk.root / "log" / "hint").write_bytes(bytes(72))
        with pytest.raises(UnavailableError, match="holds the sync lock"):
            send(other, b"meanwhile")

    commit = log.append([unit_of(disk, [b"second"])])
    disk.failing["sync"], disk.after_failed_sync = errno.EIO, damage_the_page_and_write
    log.sync(commit)
    disk.failing.clear()
    send(other, b"third")
    assert values_of(log) == _others(disk) == [b"first", b"second", b"third"]


def test_a_full_disk_does_not_keep_recovery_from_its_work(log: CommitLog, disk: FailingDisk):
    log.append([unit_of(disk, [b"second"])])
    (disk.root / "log" / "hint").write_bytes(bytes(64))
    disk.failing["replace"] = errno.ENOSPC
    assert values_of(open_log(disk, create=False)) == [b"first", b"second"]
    assert "sync" in disk.calls


def test_when_writing_again_fails_too_the_outcome_is_unknown_and_a_retry_lands_once(
    log: CommitLog, disk: FailingDisk
):
    unit = unit_of(disk, [b"second"], also=(ProducerEntry("p", 1, 0),))
    commit = log.append([unit])
    disk.failing = {"sync": errno.EIO, "replace": errno.ENOSPC}
    for _ in range(2):
        with pytest.raises(CommitOutcomeUnknownError, match="are not on disk"):
            log.sync(commit)
    assert disk.calls.count("sync") == disk.calls[: disk.calls.index("replace")].count("sync")
    disk.failing.clear()
    with pytest.raises(DuplicateCommitError):
        log.append([unit])
    log.sync(commit)
    assert disk.calls.count("replace") >= 3  # never by another sync of the same file
    assert values_of(log) == _others(disk) == [b"first", b"second"]


def test_more_unsynced_frames_than_a_file_holds_are_written_again_into_several(
    disk: FailingDisk,
):
    log = open_log(disk, durable=False)
    make_topic(log)
    values = [bytes([65 + n]) * 20_000 for n in range(10)]
    for value in values:
        last = log.append([unit_of(disk, [value])])
    disk.failing["sync"] = errno.EIO
    log.sync(last)
    del disk.failing["sync"]
    assert send(log, b"more").lsn == last.lsn + 1
    assert values_of(log) == _others(disk) == [*values, b"more"]


@pytest.mark.parametrize("call", ["write", "create"])
def test_a_full_disk_refuses_the_commit_and_goes_on_when_there_is_space(
    log: CommitLog, disk: FailingDisk, call: str
):
    big = b"x" * (FILE_BYTES - 1_000)  # needs a file of its own
    disk.failing[call] = errno.ENOSPC
    for _ in range(3):
        with pytest.raises(UnavailableError, match="is full; what was being written is not stored"):
            send(log, big)
    assert values_of(log) == [b"first"]
    disk.failing.clear()
    send(log, big)
    assert values_of(log) == _others(disk) == [b"first", big]


def test_a_full_disk_while_staging_leaves_no_file(log: CommitLog, disk: FailingDisk):
    disk.failing["stage synced"] = errno.ENOSPC
    with pytest.raises(UnavailableError, match="is full"):
        send(log, b"x", staged=True)
    assert disk.list("staged") == []


def test_a_commit_larger_than_a_log_file_is_refused_before_anything_is_written(
    log: CommitLog, disk: FailingDisk
):
    with pytest.raises(InvalidRequestError, match="doesn't fit into a log file"):
        send(log, b"x" * FILE_BYTES)
    send(log, b"second")
    assert _others(disk) == [b"first", b"second"]


def test_staged_files_of_os_durability_come_to_disk_before_the_frame_counts_as_durable(
    disk: FailingDisk,
):
    log = open_log(disk, durable=False)
    make_topic(log)
    send(log, b"big", staged=True)
    assert "sync staged" not in disk.calls
    synced = log._hint.synced or 0
    disk.failing["sync staged"] = errno.EIO
    disk.calls.clear()
    reader = open_log(disk)
    assert values_of(reader) == [b"big"]  # written again, in fresh blocks
    assert disk.calls[:2] == ["sync staged", "replace"]
    assert (log._hint.synced or 0) > synced


def test_a_power_cut_after_an_unsynced_staged_commit_is_a_torn_tail(disk: FailingDisk):
    log = open_log(disk, durable=False)
    make_topic(log)
    log.sync(1)
    send(log, b"big", staged=True)
    (staged,) = (disk.root / "staged").iterdir()
    staged.write_bytes(b"")
    (disk.root / "log" / "hint").unlink()
    again = open_folder(disk.root)
    assert values_of(again) == []
    send(again, b"next")
    assert values_of(again) == [b"next"]
