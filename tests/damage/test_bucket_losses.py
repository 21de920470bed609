"""What a bucket lost altogether: checkpoints, marks, the log or its end."""

from __future__ import annotations

import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.integrity.repairs.rebuild import rebuild
from kmq_storage.integrity.verify import why_closed
from kmq_storage.log.bucket.collected import mark_collected
from kmq_storage.log.open import with_shared
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects import read_cache
from kmq_storage.objects.bucket import Fetched
from kmq_storage.objects.bucket_files import BucketFiles
from tests.damage.bucket import (
    commits_of,
    filled_bucket,
    flip,
    goes_on,
    read_around,
    store_in,
)
from tests.support.dying_bucket import ROWS, clone_to, files_of, open_bucket
from tests.support.engine import Sent, rows_of, send_rows
from tests.support.memory_bucket import MemoryBucket


@pytest.fixture(autouse=True, params=[read_cache.HEAD_BYTES, 64], ids=["whole", "in parts"])
def _fetched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small objects are fetched at once, others as they are looked at: with few bytes, all are."""
    monkeypatch.setattr(read_cache, "HEAD_BYTES", request.param)


@pytest.fixture
def bucket() -> MemoryBucket:
    return filled_bucket()


def _lost(bucket: MemoryBucket, *kinds: str) -> None:
    for name in [name for name in bucket.objects if name.startswith(kinds)]:
        del bucket.objects[name]


def _rebuilt(bucket: MemoryBucket) -> list[str]:
    files = BucketFiles(bucket)
    return rebuild(files, open_identity(files, SYSTEM, create=False), SYSTEM)


@pytest.fixture
def collected(bucket: MemoryBucket) -> MemoryBucket:
    """All records are sealed, older commits collected, and one record stands in the log."""
    with store_in(bucket) as store:
        store.seal()
        last = store.checkpoint().lsn
        store.log.drop_before(last + 1)
        for lsn in range(last + 1):
            bucket.objects.pop(paths.commit_object(lsn), None)
        with store.producer() as producer:
            producer.send("t", b"in the log", partition=1).result(10)
    return bucket


def test_a_checkpoint_that_is_lost_is_named_and_comes_back_from_segments_and_commits(
    collected: MemoryBucket,
):
    with store_in(collected) as store:
        before = [read_around(store, partition) for partition in range(2)]
    _lost(collected, "checkpoints", "pages")
    with pytest.raises(kmq.CorruptionError, match="no checkpoint that goes as far") as raised:
        store_in(collected).log.refresh()
    report = why_closed(BucketFiles(collected), raised.value)
    assert [each.file for each in report.damage] == ["checkpoints"]
    assert "a manifest was made from segments" in _rebuilt(collected)[-1]
    with store_in(collected) as store:
        assert store.verify(deep=True).damage == []
        assert [read_around(store, partition) for partition in range(2)] == before
    goes_on(collected, before)


@pytest.mark.parametrize("folder", [paths.SEGMENT_FOLDER, paths.STAGED_FOLDER])
def test_what_a_bucket_gives_no_answer_for_is_not_given_up(
    collected: MemoryBucket, monkeypatch: pytest.MonkeyPatch, folder: str
):
    with store_in(collected) as store:
        send_rows(store.log, "t", [Sent(None, b"staged")], staged=True)
    _lost(collected, "checkpoints", "pages", "log")
    get = collected.get

    def silent(name: str, *part: int) -> Fetched:
        if name.startswith(folder):
            raise OSError("the server is down")
        return get(name, *part)

    with monkeypatch.context() as down:
        down.setattr(collected, "get", silent)
        with pytest.raises(kmq.UnavailableError):
            _rebuilt(collected)
    assert not any(name.startswith("checkpoints") for name in collected.objects)


def test_a_checkpoint_that_is_damaged_is_named_where_the_store_does_not_open(
    collected: MemoryBucket,
):
    names = [name for name in collected.objects if name.startswith("checkpoints")]
    for name in names:
        flip(collected, name)
    with pytest.raises(kmq.CorruptionError) as raised:
        store_in(collected).log.refresh()
    report = why_closed(BucketFiles(collected), raised.value)
    assert {each.file for each in report.damage} == {"checkpoints", *names}


def test_a_lost_mark_of_collected_commits_is_damage_and_is_written_again(
    collected: MemoryBucket,
):
    marks = [name for name in collected.objects if name.startswith("collected")]
    _lost(collected, "collected")
    with store_in(collected) as store:
        (damage,) = store.verify().damage
        assert (damage.file, damage.topic) == (paths.commit_object(1), None)
        assert store.repair().damage == []
        store.collect()
    assert [name for name in collected.objects if name.startswith("collected")] == marks


def test_a_damaged_page_and_a_lost_mark_together_keep_no_repair_from_its_work(
    collected: MemoryBucket,
):
    before = _everything(collected)
    _lost(collected, "collected")
    for name in [name for name in collected.objects if name.startswith("pages")]:
        flip(collected, name)
    with store_in(collected) as store:
        assert store.repair().damage == []
    assert _everything(collected) == before


def test_removed_commits_with_records_of_their_own_are_not_taken_for_collected(
    bucket: MemoryBucket,
):
    with store_in(bucket) as store:
        store.checkpoint()
    for name in commits_of(bucket)[:-1]:
        del bucket.objects[name]
    with store_in(bucket) as store:
        damage = store.repair().damage
        assert {each.topic for each in damage} == {None, "t"}
        assert not any(name.startswith("collected") for name in bucket.objects)
        assert store.repair(drop_damaged=True).damage == []


def test_removed_newest_commits_are_missed_where_a_later_file_tells_of_them(bucket: MemoryBucket):
    with store_in(bucket) as store:
        before = [read_around(store, partition) for partition in range(2)]
        known = commits_of(bucket)[-1]
        store.seal()
    lost = [name for name in commits_of(bucket) if name >= known]
    for name in lost:
        del bucket.objects[name]
    with store_in(bucket) as store:
        (damage,) = store.verify().damage
        assert damage.file == known
        assert store.repair(drop_damaged=True).damage == []
    goes_on(bucket, before)


def test_removed_newest_commits_are_missed_where_somebody_keeps_their_state(bucket: MemoryBucket):
    with store_in(bucket) as store, store.pin(60):
        before = [read_around(store, partition) for partition in range(2)]
        last = commits_of(bucket)[-1]
        del bucket.objects[last]
        with store_in(bucket) as other:
            (damage,) = other.verify().damage
            assert damage.file == last
            assert other.repair(drop_damaged=True).damage == []
    goes_on(bucket, before)


@pytest.mark.parametrize("mark", ["collected", "nothing else"])
def test_a_store_of_which_only_segments_are_left_is_damaged_and_gives_no_offset_out_again(
    collected: MemoryBucket, mark: str
):
    with store_in(collected) as store:
        before = [read_around(store, partition) for partition in range(2)]
    _lost(collected, "checkpoints", "pages", "log", mark)
    if mark == "collected":
        with store_in(collected) as store:
            assert paths.commit_object(1) in {each.file for each in store.verify().damage}
            with pytest.raises(kmq.CorruptionError, match="kmq repair --drop-damaged"):
                store.create_topic("new")
    else:
        _rebuilt(collected)
    with store_in(collected) as store:
        assert store.repair(drop_damaged=True).damage == []
        found = [read_around(store, partition) for partition in range(2)]
    assert found == [before[0], before[1][:-1]]
    goes_on(collected, before)


def test_a_clone_whose_checkpoint_is_lost_has_what_it_shares_and_nothing_that_came_later():
    source = MemoryBucket("memory-bucket://b/source")
    with open_bucket(source, create=True) as store:
        store.create_topic("t")
        send_rows(store.log, "t", ROWS)
        store.seal()
        clone_to(source, "clone")
        place = source.beside("clone")
        with open_bucket(place) as clone:
            send_rows(clone.log, "t", ROWS[:3])
            before = rows_of(clone, "t")
        send_rows(store.log, "t", ROWS)  # the source goes on at the same offsets
        store.seal()
        store.compact("t")
    _lost(place, "checkpoints", "pages")
    files = files_of(place)
    identity = open_identity(files, SYSTEM, create=False)
    rebuild(with_shared(files, identity), identity, SYSTEM)
    with open_bucket(place) as clone:
        assert clone.offsets("t") == {0: (0, 13)}
        assert rows_of(clone, "t") == before
        assert clone.verify(deep=True).damage == []


def _everything(bucket: MemoryBucket) -> list[list[tuple[int, bytes]]]:
    with store_in(bucket) as store:
        return [read_around(store, partition) for partition in range(2)]


def _mark_collected(bucket: MemoryBucket) -> tuple[list[list[tuple[int, bytes]]], int]:
    """Commits are marked as collected, and deleted later; then the only checkpoint is lost."""
    with store_in(bucket) as store:
        last = store.checkpoint().lsn
        mark_collected(BucketFiles(bucket), last - 1)
    known = _everything(bucket)
    _lost(bucket, "checkpoints", "pages")
    return known, last


def test_commits_that_are_marked_as_collected_but_still_there_are_no_lost_ones(
    bucket: MemoryBucket,
):
    known, _ = _mark_collected(bucket)
    _rebuilt(bucket)
    with store_in(bucket) as store:
        assert store.log.refresh().topic("t").settings.compression == "lz4"
        assert store.repair(drop_damaged=True).ok
        assert store.verify(deep=True).ok
    assert _everything(bucket) == known
    goes_on(bucket, known)


def test_a_checkpoint_that_was_made_anew_is_so_once_more_when_it_is_damaged_itself():
    bucket = MemoryBucket("memory-bucket://made-anew")
    with store_in(bucket) as store:
        store.create_topic("t", partitions=2)
        mark_collected(BucketFiles(bucket), store.checkpoint().lsn)
        store.alter_topic("t", retention=1e6)
    _lost(bucket, "checkpoints")
    for _ in range(2):
        _rebuilt(bucket)
        assert _everything(bucket) == [[], []]
        flip(bucket, next(name for name in bucket.objects if name.startswith("checkpoints")))


def test_of_marked_commits_those_count_that_nothing_is_missing_behind(bucket: MemoryBucket):
    known, last = _mark_collected(bucket)
    flip(bucket, paths.commit_object(last - 1))
    _rebuilt(bucket)
    with store_in(bucket) as store:
        assert store.repair(drop_damaged=True).ok
    for before, after in zip(known, _everything(bucket), strict=True):
        assert set(after) < set(before)
        assert after[-1] == before[-1]
    goes_on(bucket, known)


def test_a_commit_of_who_slept_at_a_collected_name_is_not_taken_for_the_one_that_was_there(
    bucket: MemoryBucket,
):
    asleep = MemoryBucket(bucket.url)
    for name, body in bucket.objects.items():
        asleep.put(name, [body])
    with store_in(asleep) as other, store_in(bucket) as store:
        for each, value in ((other, b"never acknowledged"), (store, b"kept"), (store, b"last")):
            with each.producer() as producer:
                producer.send("t", value, partition=0).result(10)
        name = paths.commit_object(store.checkpoint().lsn - 1)
        mark_collected(BucketFiles(bucket), store.log.refresh().lsn - 1)
    bucket.objects[name] = asleep.objects[name]
    _lost(bucket, "checkpoints", "pages")
    _rebuilt(bucket)
    assert b"never acknowledged" not in [value for _, value in _everything(bucket)[0]]
