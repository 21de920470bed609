"""Maintenance on a disk that fails: a clear error, and nothing is lost or half done."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.errors import CorruptionError, UnavailableError
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.format.manifest import SEGMENT
from kmq_storage.log.checkpoints.checkpoint import checkpoints
from tests.support.engine import Sent, files_below, open_engine, rows_of, send_rows
from tests.support.failing_disk import FailingDisk

ROWS = [Sent(b"%d" % (n % 3), b"v%d" % n) for n in range(10)]
WORK: dict[str, Callable[[kmq.Store], object]] = {
    "seal": lambda store: store.seal(),
    "checkpoint": lambda store: store.checkpoint(),
    "compact": lambda store: store.compact("t"),
    "maintain": lambda store: store.maintain(grace=0),
}


@pytest.fixture
def disk(tmp_path: Path) -> FailingDisk:
    return FailingDisk(tmp_path / "store")


@pytest.fixture
def store(disk: FailingDisk, monkeypatch: pytest.MonkeyPatch) -> Iterator[kmq.Store]:
    monkeypatch.setattr("kmq_storage.limits.CHECKPOINT_COMMITS", 1)
    with open_engine(disk) as store:
        store.create_topic("t", cleanup="compact")
        for _ in range(3):
            send_rows(store.log, "t", ROWS)
        yield store


def _written_by_maintenance(disk: FailingDisk) -> list[str]:
    folders = (paths.SEGMENT_FOLDER, paths.PAGE_FOLDER, paths.CHECKPOINT_FOLDER)
    return [file for folder in folders for file in files_below(disk, folder)]


@pytest.mark.parametrize("work", WORK)
def test_a_full_disk_is_a_clear_error_and_work_goes_on_when_there_is_space(
    store: kmq.Store, disk: FailingDisk, work: str
):
    before = rows_of(store, "t")
    files = _written_by_maintenance(disk)
    disk.failing["stage synced"] = errno.ENOSPC
    with pytest.raises(UnavailableError, match=r"disk of store .* is full; .* try again"):
        WORK[work](store)
    assert _written_by_maintenance(disk) == files
    assert rows_of(store, "t") == before
    del disk.failing["stage synced"]
    WORK[work](store)
    newest = {row.key: row for row in before.values()}
    assert {row.key: row for row in rows_of(store, "t").values()} == newest


def _damage(disk: FailingDisk, text: bytes) -> None:
    files = [disk.root / file for file in files_below(disk, paths.LOG_FOLDER)]
    (found,) = (file for file in files if text in file.read_bytes())
    with open(found, "r+b") as file:  # in place: others have it mapped
        file.seek(file.read().index(text))
        file.write(b"P")


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
def test_damage_in_one_partition_keeps_the_others_from_nothing_and_is_told_at_the_end(
    store: kmq.Store, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch, cleanup: str
):
    store.create_topic("u", cleanup=cleanup)
    send_rows(store.log, "t", [Sent(b"damaged", b"payload" * 20)])
    send_rows(store.log, "u", ROWS)
    _damage(disk, b"payload")
    store = open_engine(FailingDisk(disk.root))
    later = replace(SYSTEM, now_ns=lambda: SYSTEM.now_ns() + 3600 * 10**9)
    monkeypatch.setattr(store.log, "environment", later)
    with pytest.raises(CorruptionError, match="t-0, offsets 30 to 30"):
        store.maintain()
    state = store.log.refresh()
    (sealed,) = state.topic("u").index(0).rows(0, 10)
    assert (sealed.kind, sealed.compacted) == (SEGMENT, cleanup == "compact")
    assert checkpoints(disk)[0][0] == state.lsn


@pytest.mark.parametrize("work", WORK)
def test_a_damaged_record_is_named_and_never_sealed_away(
    store: kmq.Store, disk: FailingDisk, work: str
):
    send_rows(store.log, "t", [Sent(b"damaged", b"payload" * 20)])
    store.checkpoint()
    send_rows(store.log, "t", [Sent(b"k", b"behind")])
    _damage(disk, b"payload")
    store = open_engine(FailingDisk(disk.root))
    if work in ("seal", "compact"):
        with pytest.raises(CorruptionError, match="t-0, offsets 30 to 30"):
            WORK[work](store)
    assert len(rows_of(store, "t", start=31)) == 1
    assert [file for file in files_below(disk, paths.SEGMENT_FOLDER) if "tmp" in file] == []


def test_segments_that_were_written_beside_one_that_failed_are_not_left(tmp_path: Path):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        for topic in ("a", "b"):
            store.create_topic(topic)
            with store.producer() as producer:
                producer.send_batch(topic, [topic.encode() * 9_999] * 200).result()
        (file, *_) = sorted((tmp_path / "store/staged").iterdir(), key=lambda f: f.stat().st_mtime)
        file.write_bytes(file.read_bytes().replace(b"aaaa", b"aaab"))
        with pytest.raises(CorruptionError, match="a-0"):
            store.seal()
    assert not list((tmp_path / "store").rglob("segments/*/*/*.arrow"))
