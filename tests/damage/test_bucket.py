"""A store in a bucket is verified and repaired like one on a disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.log.bucket.commit_objects import CommitObjects, NewCommit
from kmq_storage.log.bucket.follower import Follower
from kmq_storage.log.state.lost_ranges import Unnamed
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.bucket import Put
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.cache_folder import CacheFolder
from tests.damage.bucket import (
    commits_of,
    filled_bucket,
    flip,
    goes_on,
    read_around,
    remove,
    store_in,
)
from tests.support.dying_bucket import DyingBucket
from tests.support.dying_disk import Died
from tests.support.memory_bucket import MemoryBucket
from tests.support.s3 import S3Server


@pytest.fixture
def bucket() -> MemoryBucket:
    return filled_bucket()


def test_a_whole_bucket_is_whole(bucket: MemoryBucket):
    with store_in(bucket) as store:
        assert store.verify(deep=True).damage == []


@pytest.mark.parametrize("harm", [flip, remove])
@pytest.mark.parametrize("number", [-1, -2])
def test_who_had_read_what_a_repair_gave_up_counts_what_is_left(
    bucket: MemoryBucket, harm: Callable[[MemoryBucket, str], None], number: int
):
    with store_in(bucket) as knows:
        before = knows.describe_topic("t")
        harm(bucket, commits_of(bucket)[number])
        with store_in(bucket) as other:
            if harm is remove:  # nothing else tells of the last one
                with knows.producer() as producer:
                    producer.send("t", b"behind it").result(10)
            assert other.repair(drop_damaged=True).damage == []
            left = other.describe_topic("t")
        found = knows.describe_topic("t")
        assert (found.rows, found.bytes) == (left.rows, left.bytes)
        assert found.rows <= before.rows - 29
        knows.alter_topic("t", retention_bytes=left.bytes)  # all that is there, if it counts right
        assert knows.maintain().trimmed.rows == 0


def test_a_look_at_one_commit_that_has_a_follower_begin_anew_goes_back_to_none_before(
    bucket: MemoryBucket,
):
    files = BucketFiles(bucket)
    seed = open_identity(files, SYSTEM, create=False).seed
    follower = Follower(files, CommitObjects(files, seed), SYSTEM)
    follower.advance()
    before = follower.state.lsn
    flip(bucket, commits_of(bucket)[-2])
    with store_in(bucket) as store:
        store.log.go_on_behind(Unnamed())
    newest = max(name for name in bucket.objects if name.startswith("checkpoints"))
    remove(bucket, newest)  # it comes behind the commit that gives up what was read here
    follower.step()
    assert follower.state.lsn > before


def test_behind_a_lost_trim_a_topic_has_as_many_records_as_it_says(bucket: MemoryBucket):
    with store_in(bucket) as store:
        store.seal()
        store.trim("t", {0: 5})
        lost = commits_of(bucket)[-1]
        store.trim("t", {0: 15, 1: 15})
    flip(bucket, lost)
    with store_in(bucket) as store:
        assert store.repair(drop_damaged=True).damage == []
    with store_in(bucket) as store:
        found = store.describe_topic("t")
        records = [value for number in range(2) for _, value in read_around(store, number)]
        assert found.rows == len(records) == 60
        store.alter_topic("t", retention_bytes=sum(map(len, records)) // 2)
        assert store.maintain().trimmed.rows == 0


def test_commits_that_a_listing_does_not_show_yet_are_not_called_missing(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
):
    *_, newest = sorted(name for name in bucket.objects if name.startswith("log/"))
    listed = bucket.list
    with store_in(bucket) as store:
        monkeypatch.setattr(
            bucket,
            "list",
            lambda *folder: (each for each in listed(*folder) if each.path != newest),
        )
        assert store.verify(deep=True).damage == []
        body = bytearray(bucket.objects[newest])
        body[-20] ^= 1
        bucket.objects[newest] = bytes(body)
    with store_in(bucket) as store:
        assert newest in {each.file for each in store.verify(deep=True).damage}


def test_a_bucket_that_does_not_answer_is_unavailable_not_damaged(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
):
    def silent(*_: object) -> NoReturn:
        raise OSError("no answer")

    with store_in(bucket) as store:
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
        with store_in(bucket) as store:
            damage = store.verify(deep=True).damage
        named = {each.file for each in damage}
        assert name in named
        assert ".log" not in "".join(map(str, damage))
        assert named <= bucket.objects.keys()
        bucket.objects[name] = original


@pytest.mark.parametrize(
    ("harm", "kinds"),
    [
        (flip, ("checkpoints", "log", "pages", "segments", "staged")),
        (remove, ("segments", "staged")),
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
    store = store_in(bucket, folder)
    with store.producer() as producer:
        producer.send_batch("t", [random.Random(5).randbytes(1_000_000)] * 5).result(10)
    assert store.read("t").read_all().num_rows == 95
    assert store.verify(deep=True).damage == []
    names = [name for name in bucket.objects if name.startswith(kinds)]
    assert {name.partition("/")[0] for name in names} == set(kinds)
    for name in names:
        if opened_again:
            store.close()
            store = store_in(bucket, folder)
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
    flip(bucket, name)
    with files.afresh():
        with files.afresh():
            assert files.map(name).to_pybytes() == bucket.objects[name]
        assert files.map(name).to_pybytes() == bucket.objects[name]
    assert files.map(name).to_pybytes() == whole  # the folder's is as it was written


def test_repair_cuts_out_what_only_its_own_handle_still_knows(bucket: MemoryBucket):
    with store_in(bucket) as store:
        assert store.read("t").read_all().num_rows == 90
        flip(bucket, commits_of(bucket)[-2])
        assert store.repair(drop_damaged=True).damage == []
        with store_in(bucket) as other:
            assert other.verify(deep=True).damage == []
            for partition in range(2):
                assert read_around(store, partition) == read_around(other, partition)


def test_a_missing_commit_is_damage(bucket: MemoryBucket):
    name = sorted(name for name in bucket.objects if name.startswith("log"))[-2]
    del bucket.objects[name]
    with store_in(bucket) as store:
        named = {each.file for each in store.verify().damage}
    assert name in named
    assert all(paths.try_commit_lsn(file) for file in named)


def test_damaged_records_of_a_segment_are_cut_out(bucket: MemoryBucket):
    name = next(name for name in bucket.objects if name.startswith("segments"))
    contents = bytearray(bucket.objects[name])
    contents[len(contents) // 3] ^= 1
    bucket.objects[name] = bytes(contents)
    with store_in(bucket) as store:
        assert store.repair(drop_damaged=True).damage == []
        lost = 0
        for partition in range(2):
            try:
                store.read("t", partitions=[partition]).read_all()
            except kmq.DataLossError as error:
                lost += error.context["end"] - error.context["start"]
        assert lost in (0, 15)


@pytest.mark.parametrize("harm", [flip, remove])
@pytest.mark.parametrize(("place", "loses"), [(-3, False), (-2, True)])
def test_the_log_goes_on_behind_a_lost_commit_with_a_told_gap(
    bucket: MemoryBucket, harm: Callable[[MemoryBucket, str], None], place: int, loses: bool
):
    with store_in(bucket) as store:
        before = [read_around(store, partition) for partition in range(2)]
    harm(bucket, commits_of(bucket)[place])
    with store_in(bucket) as store:
        report = store.repair(drop_damaged=True)
        assert report.damage == []
        after = [read_around(store, partition) for partition in range(2)]
    lost = [set(old) - set(new) for old, new in zip(before, after, strict=True)]
    assert any(lost) is loses  # the other one opens a producer
    assert not any(set(new) - set(old) for old, new in zip(before, after, strict=True))
    goes_on(bucket, before)


def test_the_log_goes_on_behind_its_damaged_end_and_gives_no_offset_out_again(
    bucket: MemoryBucket,
):
    with store_in(bucket) as store:
        before = [read_around(store, partition) for partition in range(2)]
    flip(bucket, commits_of(bucket)[-1])
    with store_in(bucket) as store:
        with pytest.raises(kmq.CorruptionError, match="kmq repair --drop-damaged"):
            store.create_topic("new")
        assert store.repair(drop_damaged=True).damage == []
    goes_on(bucket, before)


def test_a_writer_that_knows_the_lost_commit_agrees_on_what_is_cut_out(bucket: MemoryBucket):
    with store_in(bucket) as knows, store_in(bucket) as repairs:
        ends = knows.offsets("t")
        flip(bucket, commits_of(bucket)[-1])
        repairs.log.reload()
        repairs.repair(drop_damaged=True)
        with knows.producer() as producer:
            sent = [producer.send("t", b"new", partition=n).result(10) for n in range(2)]
        assert all(place.offset > ends[number][1] for number, place in enumerate(sent))
        for partition in range(2):
            assert read_around(knows, partition) == read_around(repairs, partition)


def test_nobody_who_slept_takes_the_name_of_a_lost_commit(bucket: MemoryBucket):
    with store_in(bucket) as sleeper:
        names = commits_of(bucket)
        rest = {name: bucket.objects.pop(name) for name in names[-2:]}
        sleeper.log.reload()
        assert sleeper.log.state.lsn + 1 == int(names[-2].rpartition("/")[2][:20])
        bucket.objects[names[-1]] = rest[names[-1]]  # the one before it is lost
        with store_in(bucket) as store:
            store.repair(drop_damaged=True)
            ends = store.offsets("t")
        with sleeper.producer() as producer:
            sent = producer.send("t", b"new", partition=0).result(10)
        assert sent.offset >= ends[0][1]


def test_two_repairs_at_once_cut_the_same_out(bucket: MemoryBucket):
    flip(bucket, commits_of(bucket)[-1])
    with store_in(bucket) as one, store_in(bucket) as other:
        original = CommitObjects.create

        def meanwhile(objects: CommitObjects, commit: NewCommit) -> Put:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(CommitObjects, "create", original)
                other.log.go_on_behind(Unnamed())
            return original(objects, commit)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CommitObjects, "create", meanwhile)
            one.log.go_on_behind(Unnamed())
        assert one.log.reload().damage == other.log.reload().damage == []
        assert one.offsets("t") == other.offsets("t")


def test_killed_at_any_step_the_next_repair_goes_on(bucket: MemoryBucket):
    with store_in(bucket) as store:
        before = [read_around(store, partition) for partition in range(2)]
    remove(bucket, commits_of(bucket)[-2])  # missing, with the damaged end behind it
    flip(bucket, commits_of(bucket)[-1])
    for changes in count():
        dying = DyingBucket("memory-bucket://dying")
        for name, body in bucket.objects.items():
            dying.put(name, [body])
        dying.changes_left = changes
        try:
            with store_in(dying) as store:
                store.repair(drop_damaged=True)
            break
        except Died:
            dying.revive()
        with store_in(dying) as store:
            assert store.repair(drop_damaged=True).damage == []
        goes_on(dying, before)
    assert changes > 4


def test_a_real_server_s_store_goes_on_behind_its_damaged_end(moto: S3Server):
    url, options = moto.new_url(), moto.options()
    with kmq.open(url, storage_options=options, maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            first, last = (producer.send("t", value).result(10) for value in (b"1", b"2"))
        files = store.log.files
        assert isinstance(files, BucketFiles)
        end = paths.commit_object(store.log.refresh().lsn)
        files.bucket.put(end, [files.read(end)[:-1]])
    with kmq.open(url, storage_options=options, maintenance=False) as store:
        assert store.repair(drop_damaged=True).damage == []
        with store.producer() as producer:
            sent = producer.send("t", b"3").result(10)
        assert sent.offset > last.offset
        assert read_around(store, 0) == [(first.offset, b"1"), (sent.offset, b"3")]
