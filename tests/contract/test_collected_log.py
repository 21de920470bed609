"""A log whose beginning is collected while somebody sleeps, on a bucket with a clock that jumps.

Finds a commit that is acknowledged at a name that nobody reads any more, a reader that takes a
deleted commit for the end of the log, and commits that are deleted under a reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature

import pytest

from kmq_storage import limits, paths
from kmq_storage.environment import SYSTEM, Environment
from kmq_storage.errors import CommitOutcomeUnknownError, OffsetOutOfRangeError
from kmq_storage.format.identity import BucketFacts, Identity
from kmq_storage.log.bucket.bucket_log import BucketLog
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.objects.bucket import Put
from kmq_storage.objects.bucket_files import BucketFiles
from tests.simulation.bucket_mutants import (
    acknowledges_a_void_commit,
    forgets_that_names_are_free_again,
    takes_what_was_collected_for_void,
)
from tests.simulation.collection_mutants import never_begins_anew
from tests.simulation.mutants import Mutant
from tests.support.memory_bucket import MemoryBucket
from tests.support.storage import make_topic, send, values_of

HOURS = 3600 * 1_000_000


class Clock:
    """One time for the store and all hosts, in microseconds."""

    def __init__(self) -> None:
        self.now = 1_000 * HOURS

    def environment(self) -> Environment:
        return replace(SYSTEM, monotonic=lambda: self.now / 1e6, now_ns=lambda: self.now * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bucket(clock: Clock) -> MemoryBucket:
    return MemoryBucket("memory-bucket://collected", clock=lambda: clock.now)


IDENTITY = Identity(SYSTEM.new_uuid(), bucket=BucketFacts("", True, ()))


def _open(bucket: MemoryBucket, clock: Clock) -> BucketLog:
    return BucketLog(BucketFiles(bucket), IDENTITY, clock.environment())


def _filled(bucket: MemoryBucket, clock: Clock) -> BucketLog:
    log = _open(bucket, clock)
    make_topic(log)
    for n in range(5):
        send(log, b"%d" % n, staged=True)
    return log


def _collect(log: BucketLog, clock: Clock) -> int:
    """Collect everything that a checkpoint of now makes superfluous; the LSN it covers."""
    lsn = checkpoint(log).lsn
    log.drop_before(lsn + 1)
    clock.now += 2 * HOURS
    log.drop_before(lsn + 1)
    return lsn


def _commits(bucket: MemoryBucket) -> list[str]:
    return [name for name in bucket.objects if name.startswith("log/")]


def test_commits_are_deleted_only_long_after_they_were_marked(bucket: MemoryBucket, clock: Clock):
    log = _filled(bucket, clock)
    lsn = checkpoint(log).lsn
    assert log.drop_before(lsn + 1) == []
    assert len(_commits(bucket)) == 6
    clock.now += round(limits.COLLECTED_LOG_GRACE * 1e6) - 1
    assert log.drop_before(lsn + 1) == []
    clock.now += 2
    assert len(log.drop_before(lsn + 1)) == 6
    assert _commits(bucket) == []
    assert values_of(_open(bucket, clock)) == [b"0", b"1", b"2", b"3", b"4"]
    with pytest.raises(OffsetOutOfRangeError):
        next(_open(bucket, clock).commits(3))


def test_a_commit_that_was_collected_is_said_to_be_so_though_its_name_is_taken_again(
    bucket: MemoryBucket, clock: Clock
):
    log = _filled(bucket, clock)
    last = _collect(log, clock)
    send(log, b"more")
    bucket.objects[paths.commit_object(last)] = bucket.objects[paths.commit_object(last + 1)]
    with pytest.raises(OffsetOutOfRangeError, match=f"begins at commit {last + 1}"):
        log.written_commit(last)
    assert log.written_commit(last + 1).lsn == last + 1


def test_a_writer_that_slept_while_its_next_name_was_collected_commits_at_the_end(
    bucket: MemoryBucket, clock: Clock
):
    _filled(bucket, clock)
    sleeper, others = _open(bucket, clock), _open(bucket, clock)
    assert sleeper.refresh().lsn == 6
    for n in range(5, 9):
        send(others, b"%d" % n, staged=True)
    assert _collect(others, clock) == 10
    send(sleeper, b"late")
    assert values_of(sleeper) == values_of(_open(bucket, clock))
    assert values_of(sleeper)[-1] == b"late"
    assert len(values_of(sleeper)) == 10


def test_who_slept_learns_from_a_checkpoint_that_the_log_went_on_though_the_marks_are_lost(
    bucket: MemoryBucket, clock: Clock
):
    _filled(bucket, clock)
    sleeper, others = _open(bucket, clock), _open(bucket, clock)
    assert sleeper.refresh().lsn == 6
    send(others, b"5", staged=True)
    assert _collect(others, clock) == 7
    for name in [name for name in bucket.objects if name.startswith("collected/")]:
        del bucket.objects[name]
    assert send(sleeper, b"late").lsn == 8
    assert values_of(_open(bucket, clock))[-2:] == [b"5", b"late"]


def test_a_writer_stopped_between_its_look_and_its_upload_does_not_believe_it(
    bucket: MemoryBucket, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    log = _filled(bucket, clock)
    sleeper = _open(bucket, clock)
    sleeper.refresh()
    create = sleeper._objects.create

    def slow_create(commit: object) -> object:
        monkeypatch.setattr(sleeper._objects, "create", create)
        send(log, b"5", staged=True)
        _collect(log, clock)
        return create(commit)  # type: ignore[arg-type]

    monkeypatch.setattr(sleeper._objects, "create", slow_create)
    commit = send(sleeper, b"late")
    assert commit.lsn == 8
    assert values_of(_open(bucket, clock)) == [*(b"%d" % n for n in range(6)), b"late"]


def _hears_late(log: BucketLog, meanwhile: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """The next upload of this handle is done at once; its answer takes as long as `meanwhile`."""
    put = log._objects._put

    def slow_put(name: str, body: bytes) -> Put:
        patch.setattr(log._objects, "_put", put)
        assert put(name, body) is Put.CREATED
        meanwhile()
        return Put.CREATED

    patch.setattr(log._objects, "_put", slow_put)


def _mark(log: BucketLog, clock: Clock, hours: float) -> None:
    """Mark everything as collected; nobody deletes it in the hours after that."""
    log.drop_before(checkpoint(log).lsn + 1)
    clock.now += round(hours * HOURS)


def _check_it_counts_once(bucket: MemoryBucket, clock: Clock, *later: bytes) -> None:
    assert values_of(_open(bucket, clock)) == [*(b"%d" % n for n in range(5)), b"late", *later]


def test_a_commit_that_was_collected_before_its_writer_heard_of_it_is_stored_once(
    bucket: MemoryBucket, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    log, sleeper = _filled(bucket, clock), _open(bucket, clock)

    def goes_on() -> None:
        send(log, b"next")
        _mark(log, clock, 2)

    _hears_late(sleeper, goes_on, monkeypatch)
    assert send(sleeper, b"late", staged=True).lsn == 7
    _check_it_counts_once(bucket, clock, b"next")
    send(sleeper, b"more")
    _check_it_counts_once(bucket, clock, b"next", b"more")


def test_the_last_commit_that_was_marked_lately_is_stored_once(
    bucket: MemoryBucket, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    log, sleeper = _filled(bucket, clock), _open(bucket, clock)
    _hears_late(sleeper, lambda: _mark(log, clock, 0.9), monkeypatch)
    assert send(sleeper, b"late", staged=True).lsn == 7
    _check_it_counts_once(bucket, clock)


def test_of_a_commit_that_was_deleted_before_its_writer_heard_of_it_nobody_can_tell(
    bucket: MemoryBucket, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    log, sleeper = _filled(bucket, clock), _open(bucket, clock)
    _hears_late(sleeper, lambda: _collect(log, clock), monkeypatch)
    with pytest.raises(CommitOutcomeUnknownError, match="stored or not"):
        send(sleeper, b"late", staged=True)
    _check_it_counts_once(bucket, clock)
    send(sleeper, b"more")
    _check_it_counts_once(bucket, clock, b"more")


def test_an_upload_that_is_tried_again_at_a_deleted_name_proves_nothing_of_the_first_one(
    bucket: MemoryBucket, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    log = _filled(bucket, clock)
    environment = replace(clock.environment(), sleep=lambda _: _collect(log, clock))
    sleeper = BucketLog(BucketFiles(bucket), IDENTITY, environment)
    put = sleeper._objects._put

    def unanswered_put(name: str, body: bytes) -> Put:
        monkeypatch.setattr(sleeper._objects, "_put", put)
        assert put(name, body) is Put.CREATED
        raise OSError("no answer")

    monkeypatch.setattr(sleeper._objects, "_put", unanswered_put)
    with pytest.raises(CommitOutcomeUnknownError, match="stored or not"):
        send(sleeper, b"late", staged=True)
    _check_it_counts_once(bucket, clock)


def test_a_store_that_fails_when_it_is_asked_what_was_collected_leaves_a_commit_in_doubt(
    bucket: MemoryBucket, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    _filled(bucket, clock)
    sleeper = _open(bucket, clock)

    def fails(folder: str, after: str = "") -> None:
        raise OSError("no answer")

    def breaks() -> None:
        clock.now += HOURS
        monkeypatch.setattr(bucket, "list", fails)

    _hears_late(sleeper, breaks, monkeypatch)
    with pytest.raises(CommitOutcomeUnknownError, match="stored or not"):
        send(sleeper, b"late")


def test_a_reader_that_slept_goes_on_from_a_checkpoint(bucket: MemoryBucket, clock: Clock):
    log = _filled(bucket, clock)
    reader = _open(bucket, clock)
    assert len(values_of(reader)) == 5
    for n in range(5, 9):
        send(log, b"%d" % n, staged=True)
    _collect(log, clock)
    send(log, b"9", staged=True)
    assert values_of(reader) == [b"%d" % n for n in range(10)]


def test_an_idle_reader_begins_anew_at_a_newer_checkpoint(bucket: MemoryBucket, clock: Clock):
    log, idle = _filled(bucket, clock), _open(bucket, clock)
    idle.refresh()
    made = checkpoint(log).lsn
    assert idle.refresh().checkpoint_lsn == 0
    clock.now += round(limits.REBASE_SECONDS * 1e6)
    assert idle.refresh().checkpoint_lsn == made


def test_a_void_commit_is_not_read_by_who_slept_as_long(bucket: MemoryBucket, clock: Clock):
    log = _filled(bucket, clock)
    reader = _open(bucket, clock)
    assert reader.refresh().lsn == 6
    for n in range(5, 9):
        send(log, b"%d" % n, staged=True)
    # What the zombie would put at the name of commit 7 if it looked at nothing.
    other = MemoryBucket("memory-bucket://other", clock=lambda: clock.now)
    other.objects = {n: body for n, body in bucket.objects.items() if n not in _after(6)}
    forged = _open(other, clock)
    send(forged, b"void")
    _collect(log, clock)
    bucket.put(paths.commit_object(7), [other.objects[paths.commit_object(7)]])
    assert values_of(reader) == [b"%d" % n for n in range(9)]


def _after(lsn: int) -> list[str]:
    return [paths.commit_object(n) for n in range(lsn + 1, lsn + 10)]


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (
            acknowledges_a_void_commit,
            test_a_writer_stopped_between_its_look_and_its_upload_does_not_believe_it,
        ),
        (
            takes_what_was_collected_for_void,
            test_a_commit_that_was_collected_before_its_writer_heard_of_it_is_stored_once,
        ),
        (
            forgets_that_names_are_free_again,
            test_a_writer_that_slept_while_its_next_name_was_collected_commits_at_the_end,
        ),
        (never_begins_anew, test_an_idle_reader_begins_anew_at_a_newer_checkpoint),
    ],
)
def test_a_mistake_that_is_planted_there_is_found(
    bucket: MemoryBucket,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    mutant: Mutant,
    test: Callable[..., None],
):
    fixtures = {"bucket": bucket, "clock": clock, "monkeypatch": monkeypatch}
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        test(**{name: fixtures[name] for name in signature(test).parameters})
