"""A store in a bucket is verified and repaired like one on a disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest

import kmq_spark as kmq
from kmq_spark.client.store import Store
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.integrity.rebuild import rebuild
from kmq_storage.integrity.verify import why_closed
from kmq_storage.log.commit_objects import CommitObjects, NewCommit
from kmq_storage.log.open import open_commit_log
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.bucket import Put
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.cache_folder import CacheFolder
from tests.support.dying_bucket import DyingBucket
from tests.support.dying_disk import Died
from tests.support.memory_bucket import MemoryBucket
from tests.support.s3 import S3Server


@pytest.fixture
def bucket() -> MemoryBucket:
    bucket = MemoryBucket("memory-bucket://damage")
    with _store(bucket) as store:
        store.create_topic("t", partitions=2, compression="lz4")
        for round_ in range(3):
            with store.producer() as producer:
                for number in range(30):
                    producer.send("t", b"%d %d" % (round_, number), partition=number % 2)
            if round_ == 0:
                store.seal()
                store.checkpoint()
    return bucket


def _store(bucket: MemoryBucket, folder: CacheFolder | None = None) -> Store:
    files = BucketFiles(bucket, cache_folder=folder, environment=SYSTEM)
    identity = open_identity(files, SYSTEM, create=True)
    return Store(open_commit_log(files, identity, SYSTEM))


def _commits(bucket: MemoryBucket) -> list[str]:
    return sorted(name for name in bucket.objects if name.startswith("log"))


def _flip(bucket: MemoryBucket, name: str) -> None:
    changed = bytearray(bucket.objects[name])
    changed[20] ^= 1
    bucket.objects[name] = bytes(changed)


def _remove(bucket: MemoryBucket, name: str) -> None:
    del bucket.objects[name]


def test_a_whole_bucket_is_whole(bucket: MemoryBucket):
    with _store(bucket) as store:
        assert store.verify(deep=True).damage == []


def test_commits_that_a_listing_does_not_show_yet_are_not_called_missing(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
):
    *_, newest = sorted(name for name in bucket.objects if name.startswith("log/"))
    listed = bucket.list
    with _store(bucket) as store:
        monkeypatch.setattr(
            bucket,
            "list",
            lambda *folder: (each for each in listed(*folder) if each.path != newest),
        )
        assert store.verify(deep=True).damage == []
        body = bytearray(bucket.objects[newest])
        body[-20] ^= 1
        bucket.objects[newest] = bytes(body)
    with _store(bucket) as store:
        assert newest in {each.file for each in store.verify(deep=True).damage}


def test_a_bucket_that_does_not_answer_is_unavailable_not_damaged(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
):
    def silent(*_: object) -> NoReturn:
        raise OSError("no answer")

    with _store(bucket) as store:
        monkeypatch.setattr(bucket, "list", silent)
        for look in (store.verify, store.repair):
            with pytest.raises(kmq.UnavailableError, match="no answer"):
                look()


@pytest.mark.parametrize("kind", ["log", "segments", "checkpoints", "pages"])
def test_every_changed_byte_of_an_object_is_found(bucket: MemoryBucket, kind: str):
    rng = random.Random(5)
    names = [name for name in bucket.objects if name.startswith(kind)]
    assert names
    for _ in range(25):
        name = rng.choice(names)
        original = bucket.objects[name]
        changed = bytearray(original)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        bucket.objects[name] = bytes(changed)
        with _store(bucket) as store:
            named = {each.file for each in store.verify(deep=True).damage}
        assert name in named
        assert named <= bucket.objects.keys()
        bucket.objects[name] = original


@pytest.mark.parametrize(
    ("harm", "kinds"),
    [
        (_flip, ("checkpoints", "log", "pages", "segments", "staged")),
        (_remove, ("segments", "staged")),
    ],
)
@pytest.mark.parametrize("opened_again", [False, True])
def test_what_was_read_before_does_not_hide_what_became_of_the_bucket(
    bucket: MemoryBucket,
    tmp_path: Path,
    harm: Callable[[MemoryBucket, str], None],
    kinds: tuple[str, ...],
    opened_again: bool,
):
    folder = CacheFolder(tmp_path, bucket.url, 1 << 26)
    store = _store(bucket, folder)
    with store.producer() as producer:
        producer.send_batch("t", [random.Random(5).randbytes(1_000_000)] * 5).result(10)
    assert store.read("t").read_all().num_rows == 95
    assert store.verify(deep=True).damage == []
    names = [name for name in bucket.objects if name.startswith(kinds)]
    assert {name.partition("/")[0] for name in names} == set(kinds)
    for name in names:
        if opened_again:
            store.close()
            store = _store(bucket, folder)
        original = bucket.objects[name]
        harm(bucket, name)
        assert name in {each.file for each in store.verify(deep=True).damage}
        bucket.objects[name] = original
    assert store.verify(deep=True).damage == []
    store.close()


def test_two_looks_at_once_each_see_what_became_of_the_bucket(bucket: MemoryBucket, tmp_path: Path):
    files = BucketFiles(bucket, cache_folder=CacheFolder(tmp_path, bucket.url, 1 << 20))
    name = next(name for name in bucket.objects if name.startswith("pages"))
    whole = files.map(name).to_pybytes()
    _flip(bucket, name)
    with files.afresh():
        with files.afresh():
            assert files.map(name).to_pybytes() == bucket.objects[name]
        assert files.map(name).to_pybytes() == bucket.objects[name]
    assert files.map(name).to_pybytes() == whole  # the folder's is as it was written


def test_repair_cuts_out_what_only_its_own_handle_still_knows(bucket: MemoryBucket):
    with _store(bucket) as store:
        assert store.read("t").read_all().num_rows == 90
        _flip(bucket, _commits(bucket)[-2])
        assert store.repair(drop_damaged=True).damage == []
        with _store(bucket) as other:
            assert other.verify(deep=True).damage == []
            for partition in range(2):
                assert _read_around(store, partition) == _read_around(other, partition)


def test_a_missing_commit_is_damage(bucket: MemoryBucket):
    name = sorted(name for name in bucket.objects if name.startswith("log"))[-2]
    del bucket.objects[name]
    with _store(bucket) as store:
        named = {each.file for each in store.verify().damage}
    assert name in named
    assert all(paths.try_commit_lsn(file) for file in named)


def test_damaged_records_of_a_segment_are_cut_out(bucket: MemoryBucket):
    name = next(name for name in bucket.objects if name.startswith("segments"))
    contents = bytearray(bucket.objects[name])
    contents[len(contents) // 3] ^= 1
    bucket.objects[name] = bytes(contents)
    with _store(bucket) as store:
        assert store.repair(drop_damaged=True).damage == []
        lost = 0
        for partition in range(2):
            try:
                store.read("t", partitions=[partition]).read_all()
            except kmq.DataLossError as error:
                lost += error.context["end"] - error.context["start"]
        assert lost in (0, 15)


def _read_around(store: Store, partition: int) -> list[tuple[int, bytes]]:
    """Offsets and values of a partition, but for what readers are told is lost."""
    found: list[tuple[int, bytes]] = []
    start = 0
    end = store.offsets("t")[partition][1]
    while start < end:
        try:
            table = store.read("t", partitions=[partition], start={partition: start}).read_all()
        except kmq.DataLossError as error:
            gap = error.context["start"], error.context["end"]
            table = store.read(
                "t", partitions=[partition], start={partition: start}, end={partition: gap[0]}
            ).read_all()
            start = gap[1]
        else:
            start = end
        found += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return found


@pytest.mark.parametrize("harm", [_flip, _remove])
@pytest.mark.parametrize(("place", "loses"), [(-3, False), (-2, True)])
def test_the_log_goes_on_behind_a_lost_commit_with_a_told_gap(
    bucket: MemoryBucket, harm: Callable[[MemoryBucket, str], None], place: int, loses: bool
):
    with _store(bucket) as store:
        before = [_read_around(store, partition) for partition in range(2)]
    harm(bucket, _commits(bucket)[place])
    with _store(bucket) as store:
        report = store.repair(drop_damaged=True)
        assert report.damage == []
        after = [_read_around(store, partition) for partition in range(2)]
    lost = [set(old) - set(new) for old, new in zip(before, after, strict=True)]
    assert any(lost) is loses  # the other one opens a producer
    assert not any(set(new) - set(old) for old, new in zip(before, after, strict=True))
    _goes_on(bucket, before)


def test_the_log_goes_on_behind_its_damaged_end_and_gives_no_offset_out_again(
    bucket: MemoryBucket,
):
    with _store(bucket) as store:
        before = [_read_around(store, partition) for partition in range(2)]
    _flip(bucket, _commits(bucket)[-1])
    with _store(bucket) as store:
        with pytest.raises(kmq.CorruptionError, match="kmq repair --drop-damaged"):
            store.create_topic("new")
        assert store.repair(drop_damaged=True).damage == []
    _goes_on(bucket, before)


def _goes_on(bucket: MemoryBucket, before: list[list[tuple[int, bytes]]]) -> None:
    with _store(bucket) as store:
        for partition, known in enumerate(before):
            with store.producer() as producer:
                sent = producer.send("t", b"new", partition=partition).result(10)
            assert sent.offset > known[-1][0]
            assert _read_around(store, partition)[-1] == (sent.offset, b"new")
        store.maintain()
        assert store.verify(deep=True).damage == []


def test_a_writer_that_knows_the_lost_commit_agrees_on_what_is_cut_out(bucket: MemoryBucket):
    with _store(bucket) as knows, _store(bucket) as repairs:
        ends = knows.offsets("t")
        _flip(bucket, _commits(bucket)[-1])
        repairs.log.reload()
        repairs.repair(drop_damaged=True)
        with knows.producer() as producer:
            sent = [producer.send("t", b"new", partition=n).result(10) for n in range(2)]
        assert all(place.offset > ends[number][1] for number, place in enumerate(sent))
        for partition in range(2):
            assert _read_around(knows, partition) == _read_around(repairs, partition)


def test_nobody_who_slept_takes_the_name_of_a_lost_commit(bucket: MemoryBucket):
    with _store(bucket) as sleeper:
        names = _commits(bucket)
        rest = {name: bucket.objects.pop(name) for name in names[-2:]}
        sleeper.log.reload()
        assert sleeper.log.state.lsn + 1 == int(names[-2].rpartition("/")[2][:20])
        bucket.objects[names[-1]] = rest[names[-1]]  # the one before it is lost
        with _store(bucket) as store:
            store.repair(drop_damaged=True)
            ends = store.offsets("t")
        with sleeper.producer() as producer:
            sent = producer.send("t", b"new", partition=0).result(10)
        assert sent.offset >= ends[0][1]


def test_two_repairs_at_once_cut_the_same_out(bucket: MemoryBucket):
    _flip(bucket, _commits(bucket)[-1])
    with _store(bucket) as one, _store(bucket) as other:
        original = CommitObjects.create

        def meanwhile(objects: CommitObjects, commit: NewCommit) -> Put:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(CommitObjects, "create", original)
                other.log.go_on_behind({})
            return original(objects, commit)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CommitObjects, "create", meanwhile)
            one.log.go_on_behind({})
        assert one.log.reload().damage == other.log.reload().damage == []
        assert one.offsets("t") == other.offsets("t")


def test_killed_at_any_step_the_next_repair_goes_on(bucket: MemoryBucket):
    with _store(bucket) as store:
        before = [_read_around(store, partition) for partition in range(2)]
    _remove(bucket, _commits(bucket)[-2])  # missing, with the damaged end behind it
    _flip(bucket, _commits(bucket)[-1])
    for changes in count():
        dying = DyingBucket("memory-bucket://dying")
        for name, body in bucket.objects.items():
            dying.put(name, [body])
        dying.changes_left = changes
        try:
            with _store(dying) as store:
                store.repair(drop_damaged=True)
            break
        except Died:
            dying.revive()
        with _store(dying) as store:
            assert store.repair(drop_damaged=True).damage == []
        _goes_on(dying, before)
    assert changes > 4


def _lost(bucket: MemoryBucket, *kinds: str) -> None:
    for name in [name for name in bucket.objects if name.startswith(kinds)]:
        del bucket.objects[name]


def _rebuilt(bucket: MemoryBucket) -> list[str]:
    files = BucketFiles(bucket)
    return rebuild(files, open_identity(files, SYSTEM, create=False), SYSTEM)


@pytest.fixture
def collected(bucket: MemoryBucket) -> MemoryBucket:
    """All records are sealed, older commits collected, and one record stands in the log."""
    with _store(bucket) as store:
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
    with _store(collected) as store:
        before = [_read_around(store, partition) for partition in range(2)]
    _lost(collected, "checkpoints", "pages")
    with pytest.raises(kmq.CorruptionError, match="no checkpoint that goes as far") as raised:
        _store(collected).log.refresh()
    report = why_closed(BucketFiles(collected), raised.value)
    assert [each.file for each in report.damage] == ["checkpoints"]
    assert "a manifest was made from segments" in _rebuilt(collected)[-1]
    with _store(collected) as store:
        assert store.verify(deep=True).damage == []
        assert [_read_around(store, partition) for partition in range(2)] == before
    _goes_on(collected, before)


def test_a_checkpoint_that_is_damaged_is_named_where_the_store_does_not_open(
    collected: MemoryBucket,
):
    names = [name for name in collected.objects if name.startswith("checkpoints")]
    for name in names:
        _flip(collected, name)
    with pytest.raises(kmq.CorruptionError) as raised:
        _store(collected).log.refresh()
    report = why_closed(BucketFiles(collected), raised.value)
    assert {each.file for each in report.damage} == {"checkpoints", *names}


@pytest.mark.parametrize("mark", ["collected", "nothing else"])
def test_a_store_of_which_only_segments_are_left_is_damaged_and_gives_no_offset_out_again(
    collected: MemoryBucket, mark: str
):
    with _store(collected) as store:
        before = [_read_around(store, partition) for partition in range(2)]
    _lost(collected, "checkpoints", "pages", "log", mark)
    if mark == "collected":
        with _store(collected) as store:
            assert paths.commit_object(1) in {each.file for each in store.verify().damage}
            with pytest.raises(kmq.CorruptionError, match="kmq repair --drop-damaged"):
                store.create_topic("new")
    else:
        _rebuilt(collected)
    with _store(collected) as store:
        assert store.repair(drop_damaged=True).damage == []
        found = [_read_around(store, partition) for partition in range(2)]
    assert found == [before[0], before[1][:-1]]
    _goes_on(collected, before)


def test_a_real_server_s_store_goes_on_behind_its_damaged_end(moto: S3Server):
    url, options = moto.new_url(), moto.options()
    with kmq.open(url, storage_options=options, maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            first, last = (producer.send("t", value).result(10) for value in (b"1", b"2"))
        files = store.log.disk
        assert isinstance(files, BucketFiles)
        end = paths.commit_object(store.log.refresh().lsn)
        files.bucket.put(end, [files.read(end)[:-1]])
    with kmq.open(url, storage_options=options, maintenance=False) as store:
        assert store.repair(drop_damaged=True).damage == []
        with store.producer() as producer:
            sent = producer.send("t", b"3").result(10)
        assert sent.offset > last.offset
        assert _read_around(store, 0) == [(first.offset, b"1"), (sent.offset, b"3")]
