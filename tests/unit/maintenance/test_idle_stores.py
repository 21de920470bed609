"""Maintenance alone, of stores in which little or nothing is written any more.

Finds: what was sealed, deleted, trimmed or compacted, and stays on the disk until somebody writes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

import kmq_spark as kmq
from kmq_storage import limits, paths
from kmq_storage.maintenance import maintain as module
from kmq_storage.maintenance.last_look import LastLook
from kmq_storage.objects.files import held_if_free
from tests.support.clock import Clock
from tests.support.counting_bucket import CountingBucket
from tests.support.dying_disk import DyingDisk
from tests.support.engine import open_engine, send_rows
from tests.unit.engine.test_checkpoints import ROWS

DAY = 24 * 3600 * 1_000_000
#: What lets files go, and is called by hand.
LETS_GO: dict[str, Callable[[kmq.Store], object]] = {
    "delete": lambda store: store.delete_topic("t"),
    "trim": lambda store: store.trim("t", {0: 40 * len(ROWS)}),
    "compact": lambda store: store.compact("t"),
}


@pytest.fixture
def disk() -> DyingDisk:
    return DyingDisk(f"memory://{uuid.uuid4().hex}")


def _filled(disk: DyingDisk) -> kmq.Store:
    store = open_engine(disk, file_bytes=4096)
    store.create_topic("t")
    for _ in range(3):
        for _ in range(20):
            send_rows(store.log, "t", ROWS)
        store.seal()
    return store


def test_what_was_sealed_goes_though_nothing_is_written_any_more(disk: DyingDisk):
    with _filled(disk) as store:
        store.checkpoint()
        assert store.maintain().collected.files == 0
        disk.ahead += DAY
        assert store.stats().files["log"] > 1
        assert store.maintain().collected.files > 0
        assert store.stats().files["log"] == 1


@pytest.mark.parametrize("call", LETS_GO)
def test_what_was_let_go_by_hand_goes_by_maintenance_alone(disk: DyingDisk, call: str):
    with _filled(disk) as store:
        store.checkpoint()
        before = store.stats().files["segments"]
        LETS_GO[call](store)
        for _ in range(3):
            store.maintain()
            disk.ahead += DAY
        assert store.stats().files["segments"] < before
        assert store.stats().garbage_files == 0
        assert store.verify(deep=True).ok


def test_commits_of_a_bucket_go_though_nothing_is_written_any_more(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "SEAL_AFTER", 0.0)
    monkeypatch.setattr(limits, "COLLECTED_LOG_GRACE", 0.1)
    bucket = CountingBucket(f"memory-bucket://{uuid.uuid4().hex}")
    with bucket.store() as store:
        store.create_topic("t")
        for _ in range(20):
            send_rows(store.log, "t", ROWS)
        store.maintain(grace=0)
        for _ in range(2):
            time.sleep(0.3)
            store.maintain(grace=0)
        assert len([*store.log.files.walk("log")]) < 5
        assert store.read("t").read_all().num_rows == 20 * len(ROWS)


def test_a_pin_holds_what_it_needs_and_makes_nobody_look_again_and_again(
    disk: DyingDisk, monkeypatch: pytest.MonkeyPatch
):
    with _filled(disk) as store:
        store.checkpoint()
        with store.pin(30 * 24 * 3600):
            for _ in range(3):
                send_rows(store.log, "t", ROWS)
                disk.ahead += DAY // 24
                store.checkpoint()
            disk.ahead += DAY // 24
            store.maintain()
            with monkeypatch.context() as patched:
                patched.setattr(module, "try_collect", None)  # it would be called in vain
                store.maintain()
            before = store.stats().files["checkpoints"]
        disk.ahead += 90_000_000  # it looks ten times in a grace time
        store.maintain()
        assert store.stats().files["checkpoints"] < before


def test_what_a_writer_that_died_left_goes_though_nothing_was_ever_sealed(
    store: kmq.Store, clock: Clock
):
    store.create_topic("t")
    assert store.maintain().checkpoint.lsn == 0
    clock.pass_seconds(25 * 3600)
    assert store.maintain().checkpoint.lsn == 1


def test_who_met_another_collector_looks_again(disk: DyingDisk):
    last = LastLook()
    with _filled(disk) as store:
        store.checkpoint()
        disk.ahead += DAY
        with held_if_free(disk.open_lock(paths.COLLECT_LOCK)):
            assert module.maintain(store.log, last).collected.files == 0
        assert module.maintain(store.log, last).collected.files > 0


def test_a_store_in_which_nothing_happens_is_looked_through_once_and_then_each_day():
    last = LastLook()
    assert not last.is_due(0, DAY)  # no checkpoint is old enough
    assert last.is_due(7, DAY)
    last.note(7, DAY, is_remote=False)
    assert not last.is_due(7, 2 * DAY - 1)
    assert last.is_due(7, 2 * DAY)
    assert last.is_due(8, DAY)


def test_a_bucket_is_looked_through_again_once_marked_commits_may_go():
    last = LastLook()
    last.note(7, 0, is_remote=True)
    hours = [hour for hour in range(48) if last.is_due(7, hour * DAY // 24)]
    last.note(7, hours[0] * DAY // 24, is_remote=True)
    assert hours[0] == 2
    assert not last.is_due(7, 25 * DAY // 24)
    assert last.is_due(7, 26 * DAY // 24)


def test_a_maintainer_that_stays_looks_no_second_time(
    disk: DyingDisk, monkeypatch: pytest.MonkeyPatch
):
    with _filled(disk) as store:
        store.checkpoint()
        disk.ahead += DAY
        store.maintain()
        walked: list[str] = []
        walk = disk.walk

        def noted(folder: str) -> object:
            walked.append(folder)
            return walk(folder)

        monkeypatch.setattr(disk, "walk", noted)
        store.maintain()
        assert "segments" not in walked
