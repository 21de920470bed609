"""The contract of `CommitLog`: one suite for the log on a disk, in memory and in a bucket.

Finds a log that loses, doubles or tears a commit, that lets two writers have one LSN, or that
shows one handle what another doesn't see.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kmq_storage.errors import (
    ClosedError,
    FencedError,
    IllegalStateError,
    NotFoundError,
    QueueFullError,
)
from kmq_storage.format.entries import ProducerEntry, RecordsEntry, TopicEntry
from kmq_storage.log.binding.binding import DuplicateCommitError, RefusedError, Unit
from kmq_storage.log.commit_log import CommitLog, WrittenCommit
from kmq_storage.log.reading.reader import ChunkReader
from tests.support.storage import TOPIC_ID, make_topic, send, unit_of, values_of

Open = Callable[..., CommitLog]
WRITERS, COMMITS = 4, 15


class CommitLogContract:
    """Subclasses give the fixture `open_handle`: each call another handle on one new store."""

    @pytest.fixture
    def open_handle(self) -> Open:
        raise NotImplementedError

    @pytest.fixture
    def log(self, open_handle: Open) -> CommitLog:
        opened = open_handle()
        make_topic(opened)
        return opened

    def test_commits_are_numbered_and_come_back_in_order(self, log: CommitLog):
        lsns = [send(log, b"a%d" % n).lsn for n in range(5)]
        assert lsns == [2, 3, 4, 5, 6]
        assert values_of(log) == [b"a0", b"a1", b"a2", b"a3", b"a4"]
        found = list(log.commits(3))
        assert [commit.lsn for commit in found] == [3, 4, 5, 6]
        assert sorted(found, key=lambda commit: commit.time) == found

    def test_a_new_handle_reads_what_another_wrote(self, log: CommitLog, open_handle: Open):
        send(log, b"x", b"y")
        send(log, b"z", partition=1)
        other = open_handle(read_only=True)
        assert values_of(other) == [b"x", b"y"]
        assert values_of(other, 1) == [b"z"]

    def test_handles_that_write_in_turn_follow_each_other(self, log: CommitLog, open_handle: Open):
        handles = [log, open_handle(), open_handle()]
        for n in range(12):
            send(handles[n % 3], b"%d" % n)
        expected = [b"%d" % n for n in range(12)]
        assert [values_of(handle) for handle in handles] == [expected] * 3

    def test_writers_that_race_lose_no_commit_and_double_none(
        self, log: CommitLog, open_handle: Open
    ):
        handles = [open_handle() for _ in range(WRITERS)]

        def write(number: int) -> list[int]:
            return [
                send(handles[number], b"%d-%d" % (number, n), partition=number % 2).lsn
                for n in range(COMMITS)
            ]

        with ThreadPoolExecutor(WRITERS) as pool:
            lsns = [lsn for found in pool.map(write, range(WRITERS)) for lsn in found]
        assert sorted(lsns) == list(range(2, 2 + WRITERS * COMMITS))
        stored = values_of(log) + values_of(log, 1)
        for number in range(WRITERS):
            own = [value for value in stored if value.startswith(b"%d-" % number)]
            assert own == [b"%d-%d" % (number, n) for n in range(COMMITS)]

    def test_threads_of_one_handle_lose_no_commit(self, log: CommitLog):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: send(log, b"%d" % n), range(40)))
        assert sorted(values_of(log), key=int) == [b"%d" % n for n in range(40)]

    def test_what_is_told_of_a_commit_is_where_its_records_stand(self, log: CommitLog):
        def write(n: int) -> None:
            commit = send(log, b"%d" % n, b"%d!" % n)
            (entry,) = (e for e in commit.entries if isinstance(e, RecordsEntry))
            places[n] = entry.base_offset

        places: dict[int, int] = {}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(24)))
        stored = values_of(log)
        assert all(stored[at : at + 2] == [b"%d" % n, b"%d!" % n] for n, at in places.items())

    def test_a_refused_unit_writes_nothing_and_is_named(self, log: CommitLog):
        before = log.refresh().lsn
        good, bad = unit_of(log.files, [b"x"]), unit_of(log.files, [b"y"], topic_id=bytes(16))
        with pytest.raises(RefusedError) as caught:
            log.append([good, bad])
        assert caught.value.unit == 1
        assert isinstance(caught.value.cause, NotFoundError)
        with pytest.raises(NotFoundError):
            log.commit([good, bad])
        assert log.refresh().lsn == before
        assert values_of(log) == []

    def test_a_full_topic_takes_no_record_more(self, log: CommitLog, open_handle: Open):
        log.commit([Unit((TopicEntry(TOPIC_ID, "t", 2, {"capacity": 3}),))])
        other = open_handle()
        send(other, b"1", b"2")
        with pytest.raises(QueueFullError):
            send(log, b"3", b"4")
        send(log, b"3")
        with pytest.raises(QueueFullError):
            send(other, b"4")
        assert values_of(log) == [b"1", b"2", b"3"]

    def test_a_sequence_is_stored_once_and_found_again(self, log: CommitLog, open_handle: Open):
        units = [unit_of(log.files, [b"x"]), Unit((ProducerEntry("p", 0, 0),))]
        written = log.append(units)
        log.sync(written)
        for handle in (log, open_handle()):
            with pytest.raises(DuplicateCommitError) as caught:
                handle.append(units)
            assert caught.value.lsn == written.lsn
            found = handle.written_commit(written.lsn)
            assert (found.lsn, found.chain) == (written.lsn, written.chain)
            assert _offsets(found) == _offsets(written) == [0]
            handle.sync(written.lsn)
        assert values_of(log) == [b"x"]

    def test_a_newer_epoch_fences_the_older_at_once(self, log: CommitLog, open_handle: Open):
        log.commit([Unit((ProducerEntry("p", 1, 0),))])
        open_handle().commit([Unit((ProducerEntry("p", 2, -1),))])
        with pytest.raises(FencedError):
            log.commit([Unit((ProducerEntry("p", 1, 1),)), unit_of(log.files, [b"x"])])
        assert values_of(log) == []

    def test_staged_and_inline_batches_come_back(self, log: CommitLog, open_handle: Open):
        send(log, b"a")
        send(log, b"b" * 100, staged=True)
        send(log, b"c" * 2_000_000, staged=True)
        send(log, b"d" * 1_500_000)
        expected = [b"a", b"b" * 100, b"c" * 2_000_000, b"d" * 1_500_000]
        assert values_of(log) == expected
        assert values_of(open_handle(read_only=True)) == expected

    def test_a_waiting_reader_wakes_for_the_commit_of_another_handle(
        self, log: CommitLog, open_handle: Open
    ):
        reader = open_handle(read_only=True)
        lsn = reader.refresh().lsn
        assert not reader.wait(lsn, 0.05)
        writer = threading.Timer(0.1, lambda: send(log, b"x"))
        writer.start()
        assert reader.wait(lsn, 10.0)
        assert reader.refresh().lsn == lsn + 1
        writer.join()

    def test_a_waiting_thread_wakes_for_a_commit_of_its_own_handle(self, log: CommitLog):
        lsn = log.refresh().lsn
        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(log.wait, lsn, 10.0) for _ in range(3)]
            time.sleep(0.05)
            send(log, b"x")
            assert all(each.result(10.0) for each in waiting)

    def test_a_waiting_thread_stops_when_told_and_when_the_handle_closes(self, log: CommitLog):
        lsn, stop = log.refresh().lsn, threading.Event()
        with ThreadPoolExecutor(2) as pool:
            told = pool.submit(log.wait, lsn, 30.0, stop.is_set)
            closed = pool.submit(log.wait, lsn, 30.0)
            time.sleep(0.05)
            stop.set()
            log.wake_waiters()
            assert told.result(10.0) is False
            log.close()
            with pytest.raises(ClosedError):
                closed.result(10.0)
        with pytest.raises(ClosedError):
            log.refresh()

    def test_commits_that_somebody_is_in_the_middle_of_end_with_the_handle(self, log: CommitLog):
        for n in range(3):
            send(log, b"%d" % n)
        commits = log.commits(1)
        next(commits)
        log.close()
        with pytest.raises(ClosedError):
            next(commits)

    def test_a_read_only_handle_writes_nothing(self, log: CommitLog, open_handle: Open):
        reader = open_handle(read_only=True)
        with pytest.raises(IllegalStateError):
            reader.commit([Unit((ProducerEntry("p", 0, 0),))])
        with pytest.raises(IllegalStateError):
            reader.written_state()
        assert reader.refresh().lsn == 1

    def test_a_reader_sees_each_commit_whole_while_others_write(
        self, log: CommitLog, open_handle: Open
    ):
        reader, done = open_handle(read_only=True), threading.Event()

        def write() -> None:
            for n in range(20):
                both = [unit_of(log.files, [b"%d" % n], partition=number) for number in (0, 1)]
                log.commit(both)
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        while not done.is_set():
            topic = reader.refresh().find_topic("t")
            assert topic is not None
            ends = {part.end for part in topic.parts}
            assert len(ends) == 1
        writer.join()
        assert values_of(reader) == values_of(reader, 1) == [b"%d" % n for n in range(20)]

    def test_a_chunk_is_read_by_a_reader_that_never_saw_the_log(
        self, log: CommitLog, open_handle: Open
    ):
        send(log, b"x", b"y", b"z")
        (chunk,) = log.refresh().topic("t").places(0, 0, 3)
        batch = ChunkReader(open_handle(read_only=True).files).read(chunk, 1, 3)
        assert batch.column("value").to_pylist() == [b"y", b"z"]


def _offsets(commit: WrittenCommit) -> list[int]:
    return [entry.base_offset for entry in commit.entries if isinstance(entry, RecordsEntry)]
