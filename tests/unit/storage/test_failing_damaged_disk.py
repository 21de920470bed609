"""A disk that fails to sync behind damage: finds a store that neither goes on nor is repaired."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

import kmq_spark as kmq
from kmq_storage.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    UnavailableError,
)
from kmq_storage.integrity.repair import repair
from kmq_storage.integrity.verify import verify
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.files.hint import open_hint
from kmq_storage.log.state.lost_ranges import Unnamed
from tests.support.damage import flip
from tests.support.dying_disk import Died, die
from tests.support.failing_disk import FailingDisk
from tests.support.storage import make_topic, open_log, send, unit_of, values_of


def _fail(disk: FailingDisk) -> None:
    disk.failing["sync"] = errno.EIO


def _fail_and_die(disk: FailingDisk) -> None:
    disk.failing["sync"], disk.after_failed_sync = errno.EIO, die


def _synced_in_vain(
    disk: FailingDisk, failing: Callable[[FailingDisk], None], damaged: set[int]
) -> None:
    """Commits 2 to 5 of partitions 0 and 1 in turn; the sync of 6 fails behind damaged ones."""
    log = open_log(disk)
    make_topic(log)
    for value in range(4):
        send(log, b"%d" % value, partition=value % 2)
    commit = log.append([unit_of(disk, [b"last"], partition=1)])
    for frame in list(log._past.frames(1, 6)):
        if frame.header.lsn in damaged:
            flip(disk.root / "log" / f"{1:020d}.log", frame.position + 70)
    failing(disk)
    with suppress(Died, UnavailableError):
        log.sync(commit)
    disk.failing.clear()


@pytest.mark.parametrize("failing", [_fail, _fail_and_die])
@pytest.mark.parametrize(
    ("damaged", "partition", "others"), [(2, 0, [b"1", b"3", b"last"]), (5, 1, [b"0", b"2"])]
)
def test_a_sync_that_fails_behind_damage_loses_nothing_and_leaves_the_damage_where_it_is(
    disk: FailingDisk,
    failing: Callable[[FailingDisk], None],
    damaged: int,
    partition: int,
    others: list[bytes],
):
    _synced_in_vain(disk, failing, {damaged})
    other = open_log(disk, create=False)
    with pytest.raises(CorruptionError, match=r"offsets . to . can't be read"):
        values_of(other, partition)
    assert values_of(other, 1 - partition) == others
    assert repair(other, drop_damaged=True).ok
    with kmq.open(disk.root) as store:
        whole = 1 - partition
        found = store.read("t", partitions=[whole], end={whole: len(others)}).read_all()
        assert found["value"].to_pylist() == others
        with pytest.raises(kmq.DataLossError):
            store.read("t", partitions=[partition]).read_all()


@pytest.mark.parametrize("failing", [_fail, _fail_and_die])
def test_a_sync_that_fails_at_a_damaged_end_leaves_a_store_that_can_be_repaired(
    disk: FailingDisk, failing: Callable[[FailingDisk], None]
):
    _synced_in_vain(disk, failing, {5, 6})
    other = open_log(disk, create=False)
    with pytest.raises(CorruptionError, match="nothing is written behind it"):
        send(other, b"after")
    assert not verify(other).ok
    assert repair(other, drop_damaged=True).ok
    with kmq.open(disk.root) as store:
        assert store.producer().send("t", b"after", partition=0).result().offset > 1
        for partition in (0, 1):
            with pytest.raises(kmq.DataLossError):
                store.read("t", partitions=[partition]).read_all()
        assert store.verify(deep=True).ok


def test_a_sync_that_fails_while_a_damaged_log_without_its_page_is_recovered_may_pass(
    disk: FailingDisk,
):
    _synced_in_vain(disk, _fail, {2})
    (disk.root / "log" / "hint").unlink()
    _fail(disk)
    with suppress(UnavailableError):
        open_log(disk, create=False).refresh()
    disk.failing.clear()
    assert values_of(open_log(disk, create=False), 1) == [b"1", b"3", b"last"]


@pytest.mark.parametrize("failing", [_fail, _fail_and_die])
@pytest.mark.parametrize("damaged", [{5, 6}, {2, 5, 6}])
def test_a_damaged_end_behind_a_failed_sync_is_repaired_after_a_start_of_the_machine_too(
    disk: FailingDisk,
    monkeypatch: pytest.MonkeyPatch,
    failing: Callable[[FailingDisk], None],
    damaged: set[int],
):
    _synced_in_vain(disk, failing, damaged)
    monkeypatch.setattr(disk, "boot_id", lambda: "the next one")
    other = open_log(disk, create=False)
    with pytest.raises(CorruptionError, match="nothing is written behind it"):
        send(other, b"after")
    assert repair(other, drop_damaged=True).ok
    send(other, b"after")
    assert verify(other, deep=True).ok


@pytest.mark.parametrize("failing", [_fail, _fail_and_die])
def test_a_sync_that_failed_is_not_tried_again_by_a_repair_that_waited_for_it(
    disk: FailingDisk, monkeypatch: pytest.MonkeyPatch, failing: Callable[[FailingDisk], None]
):
    log = open_log(disk)
    make_topic(log)
    send(log, b"first")
    repairing, other = open_log(disk, create=False), open_log(disk, create=False)
    repairing.refresh()
    commit = other.append([unit_of(disk, [b"last"])])
    failing(disk)
    disk.failing["replace"] = errno.ENOSPC
    with suppress(Died, UnavailableError):
        other.sync(commit)
    disk.failing.clear()
    disk.calls.clear()
    assert isinstance(repairing, LocalLog)
    repairing.go_on_behind(Unnamed())
    assert disk.calls[0] == "replace"
    assert values_of(repairing) == [b"first", b"last"]


def test_who_can_not_see_its_commit_for_damage_before_it_is_told_that_nobody_knows(
    disk: FailingDisk,
):
    log = open_log(disk)
    assert isinstance(log, LocalLog)
    make_topic(log)
    send(log, b"first")
    commit = log.append([unit_of(disk, [b"last"])])
    (frame,) = log._past.frames(2, 2)
    flip(disk.root / "log" / f"{1:020d}.log", frame.position + 130)
    open_hint(disk, log.identity.seed, log.environment).count_loss(3)
    with pytest.raises(CommitOutcomeUnknownError):
        log.sync(commit)
