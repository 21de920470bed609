"""Clones as their users see them, in folders and in buckets of a real server.

Finds a clone that differs from its source, one whose files its source deletes or that deletes
its source's, and one that stops working when it is maintained, cloned, copied or repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.copying.topics import copy_topics
from tests.support.storage import collect_all

Fixture = pytest.FixtureRequest


@pytest.fixture(params=["folder", "bucket"])
def url(request: Fixture, tmp_path: Path) -> Callable[[str], str]:
    """Where a store of some name is: all of them share a file system or a bucket."""
    base = str(tmp_path) if request.param == "folder" else request.getfixturevalue("s3_url")
    return lambda name: f"{base}/{name}"


def _open(url: str, **options: object) -> kmq.Store:
    return kmq.open(url, maintenance=False, **options)  # type: ignore[arg-type]


@pytest.fixture
def source(url: Callable[[str], str]) -> Iterator[kmq.Store]:
    """Sealed records and unsealed ones, staged files, gone ones, typed ones, and groups."""
    with _open(url("source")) as store:
        store.create_topic("t", partitions=2, retention=1e9)
        store.create_topic("newest", cleanup="compact", compression="zstd")
        store.create_topic("typed", schema=pa.schema([("n", pa.int64()), ("s", pa.string())]))
        store.create_topic("empty")
        with store.producer(name="p") as producer:
            _send(producer, 0, 200)
            producer.flush()
            producer.send_batch("t", [b"x" * 150_000] * 10, partition=0).result(30)
            store.seal()
            store.compact("newest")
            store.trim("t", {1: 10})
            store.checkpoint()
            _send(producer, 200, 260)
            producer.flush()
            producer.send_batch("t", [b"y" * 150_000] * 10, partition=0).result(30)
        store.set_group_offsets("g", {"t": {0: 7, 1: 30}})
        yield store


def _send(producer: kmq.Producer, first: int, end: int) -> None:
    for n in range(first, end):
        producer.send("t", b"%d" % n, headers={"h": b"1"}, properties={"n": n}, partition=n % 2)
        producer.send("newest", b"%d" % n, key=b"%d" % (n % 9))
        producer.send("typed", {"n": n, "s": str(n)}, key=b"k")


def _content(store: kmq.Store) -> dict[str, object]:
    """All that can be asked of a store, but for the log itself."""
    instant = datetime(2001, 1, 1, tzinfo=UTC)
    return {
        "topics": store.topics(),
        "groups": [replace(group, lag_seconds={}) for group in store.groups()],
        "producers": {p: s.sequence for p, s in store.log.refresh().producers.items()},
        **{topic.name: store.read(topic.name).read_all() for topic in store.topics()},
        "instants": [store.offsets_for_time(topic.name, instant) for topic in store.topics()],
    }


def _values(store: kmq.Store, topic: str = "t") -> set[bytes]:
    return set(store.read(topic).read_all()["value"].to_pylist())


def test_a_clone_has_the_content_of_its_source(source: kmq.Store, url: Callable[[str], str]):
    report = kmq.clone(source.url, url("clone"))
    assert report.lsn == source.log.refresh().lsn
    assert (report.files, report.rows) == (5, 180)
    with _open(url("clone")) as clone:
        assert _content(clone) == _content(source)
        assert clone.verify(deep=True).ok
        assert clone.verify().unreferenced == []
        with clone.consumer("g", topics=["t"]) as consumer:
            assert consumer.position() == {"t": {0: 7, 1: 30}}
        assert clone.log.identity.store_id != source.log.identity.store_id


def test_neither_shows_what_is_written_to_the_other(source: kmq.Store, url: Callable[[str], str]):
    kmq.clone(source.url, url("clone"))
    with _open(url("clone")) as clone:
        ends = source.offsets("t")
        for store, value in ((source, b"of the source"), (clone, b"of the clone")):
            with store.producer(name="p") as producer:
                assert producer.send("t", value, partition=0).result(30).offset == ends[0][1]
        clone.delete_topic("newest")
        assert b"of the clone" in _values(clone) - _values(source)
        assert b"of the source" in _values(source) - _values(clone)
        assert _values(source, "newest")


def test_a_read_only_clone_takes_no_writes(source: kmq.Store, url: Callable[[str], str]):
    kmq.clone(source.url, url("clone"), read_only=True)
    with _open(url("clone")) as clone:
        assert _content(clone) == _content(source)
        for write in (
            lambda: clone.create_topic("other"),
            clone.producer,
            lambda: clone.consumer("g", topics=["t"]),
            lambda: clone.set_group_offsets("g", "latest"),
            lambda: clone.trim("t", {0: 5}),
            lambda: clone.compact("newest"),
            clone.seal,
            clone.checkpoint,
            clone.collect,
            clone.maintain,
            clone.repair,
        ):
            with pytest.raises(kmq.IllegalStateError, match="cloned so"):
                write()
        assert clone.verify(deep=True).ok


def test_whatever_each_maintains_the_other_keeps_its_records(
    source: kmq.Store, url: Callable[[str], str]
):
    kmq.clone(source.url, url("clone"))
    with _open(url("clone")) as clone:
        before = _content(clone)
        _rewrite(source)
        assert _content(clone) == before
        assert clone.verify(deep=True).ok
        before = _content(source)
        _rewrite(clone)
        assert _content(source) == before
        assert source.verify(deep=True).ok
        assert clone.verify(deep=True).ok


def _rewrite(store: kmq.Store) -> None:
    """Write, rewrite and give up so much that no old file is needed any more, and collect."""
    with store.producer() as producer:
        _send(producer, 300, 330)
    store.seal()
    store.compact("t")
    store.compact("newest")
    store.trim("t", {0: 50})
    store.delete_topic("typed")
    store.maintain(grace=0)
    store.checkpoint()
    collect_all(store.log)


def test_clones_of_clones_and_copies_of_them_are_whole(
    source: kmq.Store, url: Callable[[str], str], tmp_path: Path
):
    kmq.clone(source.url, url("first"), read_only=True)
    kmq.clone(url("first"), url("second"))
    with _open(url("second")) as second:
        before = _content(source)
        with second.producer() as producer:
            producer.send("t", b"new", partition=1)
        second.seal()
        kmq.clone(url("second"), url("third"))
        _rewrite(source)
        _rewrite(second)
    with _open(url("third")) as third, _open(tmp_path / "copy") as copied:
        assert third.verify(deep=True).ok
        assert _values(third) == {*before["t"]["value"].to_pylist(), b"new"}  # type: ignore[index]
        copy_topics(third.log, copied.log)
        for name in ("t", "newest", "typed"):
            assert copied.read(name).read_all() == third.read(name).read_all()


def test_shared_bytes_are_told_and_count_again_when_the_clone_is_gone(
    source: kmq.Store, url: Callable[[str], str]
):
    assert source.stats().shared_files == 0
    kmq.clone(source.url, url("clone"))
    stats = source.stats()
    assert stats.shared_files == 5
    assert stats.shared_bytes > 3_000_000
    with _open(url("clone")) as clone:
        assert clone.stats().shared_bytes == stats.shared_bytes
        assert clone.stats().garbage_files == 0


def test_nothing_can_be_cloned_over_a_store(source: kmq.Store, url: Callable[[str], str]):
    with pytest.raises(kmq.AlreadyExistsError):
        kmq.clone(source.url, source.url)
    with pytest.raises(kmq.NotFoundError):
        kmq.clone(url("nothing"), url("clone"))
    assert source.verify(deep=True).ok


def test_an_empty_store_has_an_empty_clone(url: Callable[[str], str]):
    _open(url("source")).close()
    assert kmq.clone(url("source"), url("clone")) == kmq.CloneReport(0, 0, 0, 0)
    with _open(url("clone")) as clone:
        clone.create_topic("t")
        assert clone.verify(deep=True).ok


def test_the_log_of_a_clone_goes_on_behind_the_commit_it_was_made_at(
    source: kmq.Store, url: Callable[[str], str]
):
    lsn = kmq.clone(source.url, url("clone")).lsn
    with _open(url("clone")) as clone:
        assert list(clone.commits()) == []
        clone.create_topic("other")
        assert [commit.lsn for commit in clone.commits()] == [lsn + 1]
        with pytest.raises(kmq.OffsetOutOfRangeError):
            list(clone.commits(lsn))
    with _open(url("clone"), read_only=True) as again:
        assert again.describe_topic("other").rows == 0


def test_damage_in_a_clone_is_found_and_cut_out_there(tmp_path: Path):
    with _open(tmp_path / "source") as source:
        source.create_topic("t")
        with source.producer() as producer:
            producer.send_batch("t", [b"%d" % n for n in range(100)])
        source.seal()
    kmq.clone(tmp_path / "source", tmp_path / "clone")
    (shared,) = (tmp_path / "clone" / "segments").rglob("*.arrow")
    body = bytearray(shared.read_bytes())
    body[len(body) // 2] ^= 1
    shared.unlink()  # else the source had it, too
    shared.write_bytes(body)
    with _open(tmp_path / "clone") as clone:
        assert not clone.verify(deep=True).ok
        assert clone.repair(drop_damaged=True).ok
    with _open(tmp_path / "source") as source:
        assert source.verify(deep=True).ok
        assert source.read("t").read_all().num_rows == 100


def test_the_source_of_a_clone_on_a_disk_may_be_deleted_or_moved(tmp_path: Path):
    with _open(tmp_path / "source") as source:
        source.create_topic("t")
        with source.producer() as producer:
            producer.send("t", b"v")
        source.seal()
    kmq.clone(tmp_path / "source", tmp_path / "clone")
    (tmp_path / "source").rename(tmp_path / "moved")
    (tmp_path / "clone").rename(tmp_path / "moved too")
    with _open(tmp_path / "moved too") as clone:
        assert _values(clone) == {b"v"}
        assert clone.verify(deep=True).ok


def test_no_clone_crosses_a_file_system_or_leaves_its_bucket(tmp_path: Path, s3_url: str):
    for place in (tmp_path / "source", s3_url):
        _open(place).close()
    for source, target in (
        (s3_url, tmp_path / "clone"),
        (tmp_path / "source", f"{s3_url}/clone"),
        (tmp_path / "source", "/proc/clone"),
        (tmp_path / "source", "memory://clone"),
        (s3_url, "s3://another-bucket/clone"),
    ):
        with pytest.raises((kmq.InvalidRequestError, kmq.UnavailableError)):
            kmq.clone(source, target)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
