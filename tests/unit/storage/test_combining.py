"""Threads that commit at once share a commit. Finds a record told a wrong place, a refusal that
hits a neighbour, and a producer that gets past its fence beside its successor."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kmq_spark.client.sending.written import own_part
from kmq_storage import limits
from kmq_storage.errors import FencedError, NotFoundError, UnavailableError
from kmq_storage.format.entries import Entry, GroupOffsetsEntry, ProducerEntry, RecordsEntry
from kmq_storage.log.binding.binding import DuplicateCommitError, RefusedError, Unit
from kmq_storage.log.bucket.bucket_log import BucketLog
from kmq_storage.log.commit_log import WrittenCommit
from kmq_storage.objects.bucket import Put
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import Bytes
from tests.support.memory_bucket import MemoryBucket
from tests.support.storage import TOPIC_ID, make_topic, open_log, unit_of, values_of


class _Gate(MemoryBucket):
    """A bucket that holds an upload back until it is told to go on."""

    def __init__(self) -> None:
        super().__init__("memory-bucket://combining")
        self.before_next: Callable[[], None] = lambda: None

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        before, self.before_next = self.before_next, lambda: None
        before()
        return super().put_if_absent(name, buffers)


@pytest.fixture
def bucket() -> _Gate:
    return _Gate()


@pytest.fixture
def log(bucket: _Gate) -> BucketLog:
    opened = open_log(BucketFiles(bucket))
    assert isinstance(opened, BucketLog)
    make_topic(opened)
    return opened


def _units(log: BucketLog, name: str, sequence: int = 0, *, epoch: int = 0) -> list[Unit]:
    records = unit_of(log.files, [f"{name}{sequence}".encode()])
    return [records, Unit((ProducerEntry(name, epoch, sequence),))]


def _at_once(
    log: BucketLog,
    bucket: _Gate,
    requests: Sequence[Sequence[Unit]],
    *,
    next_upload: Callable[[], None] = lambda: None,
) -> list[Future[WrittenCommit]]:
    """The first one uploads; the others come while it does."""
    with ThreadPoolExecutor(len(requests)) as pool:
        uploading, come = threading.Event(), threading.Event()

        def hold() -> None:
            uploading.set()
            assert come.wait(30)
            bucket.before_next = next_upload

        bucket.before_next = hold
        sent = [pool.submit(log.append, requests[0])]
        assert uploading.wait(30)
        for number, request in enumerate(requests[1:], 1):
            sent.append(pool.submit(log.append, request))
            while len(log._combining._waiting) < number:
                time.sleep(0.001)
        come.set()
    return sent


def _entries(commit: WrittenCommit, kind: type[Entry]) -> list[Entry]:
    return [entry for entry in commit.entries if isinstance(entry, kind)]


def test_what_comes_while_one_uploads_is_one_commit_and_each_is_told_its_own_part(
    log: BucketLog, bucket: _Gate
):
    sent = _at_once(log, bucket, [_units(log, name) for name in "abcde"])
    commits = [each.result() for each in sent]
    assert [commit.lsn for commit in commits] == [2, 3, 3, 3, 3]
    assert len(values_of(log)) == 5
    for name, commit in zip("abcde", commits, strict=True):
        (records,) = _entries(commit, RecordsEntry)
        assert isinstance(records, RecordsEntry)
        assert values_of(log)[records.base_offset] == f"{name}0".encode()
        assert _entries(commit, ProducerEntry) == [ProducerEntry(name, 0, 0)]


def test_who_is_refused_fails_alone(log: BucketLog, bucket: _Gate):
    lost = unit_of(log.files, [b"x"], topic_id=bytes(16))
    bad = [unit_of(log.files, [b"y"]), lost, Unit((ProducerEntry("bad", 0, 0),))]
    sent = _at_once(log, bucket, [_units(log, "a"), _units(log, "b"), bad, _units(log, "c")])
    error = sent[2].exception()
    assert isinstance(error, RefusedError)
    assert isinstance(error.cause, NotFoundError)
    assert error.unit == 1
    assert sorted(values_of(log)) == [b"a0", b"b0", b"c0"]


def test_a_sequence_that_is_stored_is_found_and_its_neighbours_are_stored(
    log: BucketLog, bucket: _Gate
):
    before = log.append(_units(log, "again"))
    sent = _at_once(log, bucket, [_units(log, name) for name in ("a", "b", "again", "c")])
    error = sent[2].exception()
    assert isinstance(error, DuplicateCommitError)
    assert error.lsn == before.lsn
    assert sorted(values_of(log)) == [b"a0", b"again0", b"b0", b"c0"]


def test_a_producer_is_not_in_the_commit_that_fences_it(log: BucketLog, bucket: _Gate):
    opened = [Unit((ProducerEntry("p", 1, -1),))]
    sent = _at_once(log, bucket, [_units(log, "a"), opened, _units(log, "p", 0, epoch=0)])
    fencing, error = sent[1].result(), sent[2].exception()
    if error is None:  # of those that wait, any may be next
        assert sent[2].result().lsn < fencing.lsn
    else:
        assert isinstance(error, RefusedError)
        assert isinstance(error.cause, FencedError)


def test_offsets_of_groups_go_along(log: BucketLog, bucket: _Gate):
    offsets = [Unit((GroupOffsetsEntry(group, -1, TOPIC_ID, ((0, 1),)),)) for group in "gh"]
    sent = _at_once(log, bucket, [_units(log, "a"), *([unit] for unit in offsets)])
    assert [each.result().lsn for each in sent] == [2, 3, 3]
    assert {*log.refresh().groups} == {"g", "h"}


def test_what_has_no_sequence_stands_alone(log: BucketLog, bucket: _Gate):
    log.append(_units(log, "a"))
    commit = log.append([unit_of(log.files, [b"x"])])
    assert len(log.written_commit(commit.lsn).entries) == 1


def test_a_commit_takes_along_no_more_than_an_object_may_hold(log: BucketLog, bucket: _Gate):
    size = limits.COMMIT_OBJECT_INLINE_MAX // 3 - 10_000
    large = [
        [unit_of(log.files, [b"x" * size]), Unit((ProducerEntry(name, 0, 0),))] for name in "abcde"
    ]
    commits = [each.result() for each in _at_once(log, bucket, large)]
    assert sorted(commit.lsn for commit in commits) == [2, 3, 3, 3, 4]


def test_an_error_of_the_upload_reaches_all_who_share_it(log: BucketLog, bucket: _Gate):
    def refuse() -> None:
        raise PermissionError("no")

    sent = _at_once(log, bucket, [_units(log, name) for name in "abc"], next_upload=refuse)
    assert sent[0].exception() is None
    assert all(isinstance(each.exception(), UnavailableError) for each in sent[1:])
    assert values_of(log) == [b"a0"]


def test_a_producer_finds_its_own_part_of_a_commit_that_several_share():
    records = RecordsEntry(TOPIC_ID, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0)
    other, own = ProducerEntry("a", 0, 4), ProducerEntry("b", 0, 9)
    commit = WrittenCommit(3, None, (records, other, records, records, own), chain=0, losses=0)
    assert own_part(commit, own).entries == (records, records, own)
    assert own_part(commit, other).entries == (records, other)
