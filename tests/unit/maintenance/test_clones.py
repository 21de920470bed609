"""What a store in a bucket keeps for its clones.

Finds a file that is deleted while a clone needs it, or kept when none does any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

import kmq_spark as kmq
from kmq_spark.client.store import Store
from kmq_storage import limits, paths
from kmq_storage.cloning.clone import make_clone
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.clones import clone_records
from kmq_storage.maintenance.collect import collect
from kmq_storage.objects.files import Bytes, FoundFile
from tests.support.dying_bucket import (
    DyingBucket,
    clone_to,
    delete_all,
    files_of,
    fill,
    forget_all,
    log_of,
    open_bucket,
    shared_names,
)
from tests.support.engine import rows_of

DAY = 24 * 3_600_000_000


class Clock:
    """The time of a bucket, UTC microseconds."""

    now = 1_000_000 * DAY // 24

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bucket(clock: Clock) -> DyingBucket:
    return DyingBucket("memory-bucket://b/source", clock=clock)


def test_a_bucket_keeps_what_its_clone_needs_and_nothing_else(bucket: DyingBucket):
    source = fill(open_bucket(bucket, create=True))
    expected = rows_of(source, "t")
    report = clone_to(bucket, "clone")
    shared = shared_names(bucket)
    assert (report.files, report.rows) == (2, 10)
    assert len(shared) == 2
    forget_all(source)
    assert shared_names(bucket) == shared
    assert rows_of(open_bucket(bucket.prefixes["clone"]), "t") == expected  # type: ignore[arg-type]


def test_what_a_clone_needs_is_not_told_as_unused_by_its_source(bucket: DyingBucket, clock: Clock):
    source = fill(open_bucket(bucket, create=True))
    clone_to(bucket, "clone")
    forget_all(source)
    assert shared_names(bucket)
    assert source.verify().unreferenced == []
    delete_all(bucket.beside("clone"))
    clock.now += 2 * DAY
    collect(source.log, grace=0.0)
    assert shared_names(bucket) == set()


def test_a_clone_deletes_nothing_of_its_source(bucket: DyingBucket):
    source = fill(open_bucket(bucket, create=True))
    expected, before = rows_of(source, "t"), shared_names(bucket)
    clone_to(bucket, "clone")
    clone = open_bucket(bucket.beside("clone"))
    forget_all(clone)
    assert shared_names(bucket) == before
    assert rows_of(source, "t") == expected
    assert source.verify(deep=True).ok


def test_when_a_clone_is_gone_for_a_day_its_files_are_collected(bucket: DyingBucket, clock: Clock):
    source = fill(open_bucket(bucket, create=True))
    clone_to(bucket, "clone")
    clock.now += 2 * DAY
    forget_all(source)
    assert shared_names(bucket)
    delete_all(bucket.beside("clone"))
    collect(source.log, grace=0.0)
    assert shared_names(bucket) == set()
    assert list(clone_records(source.log.files)) == []


def test_a_clone_in_the_making_counts_though_it_is_not_there_yet(bucket: DyingBucket, clock: Clock):
    source = fill(open_bucket(bucket, create=True))
    clone_to(bucket, "clone")
    delete_all(bucket.beside("clone"))
    _forget_all_within_a_day(source)
    assert len(shared_names(bucket)) == 2
    clock.now += 2 * DAY
    collect(source.log, grace=0.0)
    assert shared_names(bucket) == set()


def _forget_all_within_a_day(store: Store) -> None:
    store.trim("t", {0: store.offsets("t")[0][1]})
    store.checkpoint()
    collect(store.log, grace=0.0)


def test_another_store_at_the_place_of_a_clone_is_not_the_clone(bucket: DyingBucket, clock: Clock):
    source = fill(open_bucket(bucket, create=True))
    clone_to(bucket, "clone")
    place = bucket.beside("clone")
    delete_all(place)
    open_bucket(place, create=True)
    clock.now += 2 * DAY
    forget_all(source)
    assert shared_names(bucket) == set()


def test_a_clone_that_cannot_be_asked_for_counts_as_there(
    bucket: DyingBucket, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    source = fill(open_bucket(bucket, create=True))
    clone_to(bucket, "clone")
    clock.now += 2 * DAY
    place = bucket.beside("clone")

    def refused(name: str, start: int = 0, length: int | None = None) -> None:
        raise PermissionError(name)

    monkeypatch.setattr(place, "get", refused)
    forget_all(source)
    assert len(shared_names(bucket)) == 2


def test_the_clone_of_a_clone_keeps_files_in_all_stores_before_it(
    bucket: DyingBucket, clock: Clock
):
    source = fill(open_bucket(bucket, create=True))
    expected = rows_of(source, "t")
    clone_to(bucket, "first")
    first = bucket.beside("first")
    clone_to(first, "second")
    clock.now += 2 * DAY
    forget_all(open_bucket(first))
    forget_all(source)
    second = open_bucket(first.beside("second"))
    assert rows_of(second, "t") == expected
    assert second.verify(deep=True).ok
    assert second.log.identity.origins == ("first", "source")


def test_the_clone_of_a_clone_that_is_gone_keeps_its_files(bucket: DyingBucket, clock: Clock):
    source = fill(open_bucket(bucket, create=True))
    source.seal()
    expected = rows_of(source, "t")
    clone_to(bucket, "first")
    clone_to(bucket.beside("first"), "second")
    delete_all(bucket.beside("first"))
    clock.now += 2 * DAY
    forget_all(source)
    second = open_bucket(bucket.beside("second"))
    assert rows_of(second, "t") == expected
    assert second.verify(deep=True).ok


def test_nothing_is_collected_while_nobody_knows_what_a_clone_needs(bucket: DyingBucket):
    source = fill(open_bucket(bucket, create=True))
    clone_to(bucket, "clone")
    (name,) = [name for name in bucket.objects if name.startswith(paths.CLONE_FOLDER)]
    body = bucket.objects[name]
    bucket.objects[name] = body[:-20] + b"X" + body[-19:]
    assert [each.file for each in source.verify().damage] == [name]
    before = set(bucket.objects)
    with pytest.raises(kmq.CorruptionError, match="nobody knows which files a clone needs"):
        source.collect(grace=0)
    assert set(bucket.objects) == before


def test_nothing_is_collected_while_a_newer_kmq_knows_what_a_clone_needs(
    bucket: DyingBucket, monkeypatch: pytest.MonkeyPatch
):
    source = fill(open_bucket(bucket, create=True))
    monkeypatch.setattr(limits, "FORMAT_VERSION", 2)
    clone_to(bucket, "clone")
    monkeypatch.undo()
    before = set(bucket.objects)
    with pytest.raises(kmq.FormatVersionError, match="has format 2; this kmq reads up to 1"):
        source.collect(grace=0)
    assert set(bucket.objects) == before


@pytest.mark.parametrize("when", ["before the state is read", "when the record is written"])
def test_a_source_that_forgets_everything_meanwhile_still_keeps_it(
    bucket: DyingBucket, when: str, monkeypatch: pytest.MonkeyPatch
):
    source = fill(open_bucket(bucket, create=True))
    expected = rows_of(source, "t")
    target = files_of(bucket.beside("clone"))
    log = log_of(bucket)
    _interrupt(monkeypatch, log, bucket, when, lambda: _forget_all_within_a_day(source))
    make_clone(log, target)
    clone = open_bucket(bucket.beside("clone"))
    assert clone.verify(deep=True).damage == []
    assert rows_of(clone, "t") == ({} if when.startswith("before") else expected)


def _interrupt(
    monkeypatch: pytest.MonkeyPatch,
    log: CommitLog,
    bucket: DyingBucket,
    when: str,
    work: Callable[[], None],
) -> None:
    done: list[str] = []

    def once() -> None:
        if not done:
            done.append(when)
            work()

    snapshot, put = log.snapshot, bucket.put

    def snapshot_later() -> object:
        once()
        return snapshot()

    def put_later(name: str, buffers: Iterable[Bytes]) -> None:
        if name.startswith(paths.CLONE_FOLDER):
            once()
        put(name, buffers)

    if when.startswith("before"):
        monkeypatch.setattr(log, "snapshot", snapshot_later)
    else:
        monkeypatch.setattr(bucket, "put", put_later)


def test_a_collection_that_saw_no_pin_saw_no_checkpoint_behind_it_either(
    bucket: DyingBucket, monkeypatch: pytest.MonkeyPatch
):
    source = fill(open_bucket(bucket, create=True))
    source.seal()
    source.checkpoint()
    reached, go_on = threading.Event(), threading.Event()
    maker = threading.Thread(target=clone_to, args=(bucket, "clone"))
    walked, put = source.log.files.walk, bucket.put

    def list_and_be_late(folder: str) -> Iterator[FoundFile]:
        found = list(walked(folder))
        if folder == paths.PIN_FOLDER and not reached.is_set():
            maker.start()
            assert reached.wait(10)
            other = open_bucket(bucket)
            other.trim("t", {0: 30})
            other.checkpoint()
        return iter(found)

    def put_when_told(name: str, buffers: Iterable[Bytes]) -> None:
        if name.startswith(paths.CLONE_FOLDER):
            reached.set()
            assert go_on.wait(10)
        put(name, buffers)

    monkeypatch.setattr(source.log.files, "walk", list_and_be_late)
    monkeypatch.setattr(bucket, "put", put_when_told)
    source.collect(grace=0)
    go_on.set()
    maker.join(10)
    clone = open_bucket(bucket.beside("clone"))
    assert clone.verify(deep=True).damage == []
    assert len(rows_of(clone, "t")) == 30


def test_a_clone_that_took_too_long_is_none(bucket: DyingBucket, clock: Clock):
    fill(open_bucket(bucket, create=True))
    log = log_of(bucket)
    snapshot = log.snapshot

    def slow() -> object:
        clock.now += round(limits.ORPHAN_AGE * 1e6)
        return snapshot()

    log.snapshot = slow  # type: ignore[method-assign, assignment]
    with pytest.raises(kmq.UnavailableError, match="took so long"):
        make_clone(log, files_of(bucket.beside("clone")))
    with pytest.raises(kmq.NotFoundError, match="never finished"):
        open_bucket(bucket.beside("clone"), create=True)
