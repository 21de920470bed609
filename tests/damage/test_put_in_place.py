"""Segments put back that also hold records which the log had at the last checkpoint.

Finds: records given up though a sealed file has them, and rows of the log that give way to a
segment which says less than they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.format.frame import MAGIC
from tests.damage.bucket import read_around
from tests.damage.disk import opened, repaired_store
from tests.support.damage import flip
from tests.support.engine import Sent, send_rows


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kmq.Store]:
    with opened(tmp_path) as store:
        store.create_topic("t")
        yield store


def _send(store: kmq.Store, *numbers: int, key: bytes | None = None) -> None:
    with store.producer() as producer:
        for number in numbers:
            producer.send("t", b"%d" % number, key=key)


def _offsets(store: kmq.Store) -> list[int]:
    found = read_around(store, 0)
    assert all(value == b"%d" % offset for offset, value in found)
    return [offset for offset, _ in found]


@pytest.mark.parametrize("later", [0, 5])
def test_what_was_sealed_behind_a_checkpoint_is_there_though_the_log_is_lost(
    store: kmq.Store, tmp_path: Path, later: int
):
    _send(store, *range(5))
    store.checkpoint()
    _send(store, *range(5, 5 + later))
    store.seal()
    with repaired_store(tmp_path) as repaired:
        assert _offsets(repaired) == [*range(5 + later)]
        info = repaired.describe_topic("t")
        assert (info.rows, info.bytes) == (5 + later, 5 + later)
        _send(repaired, repaired.offsets("t")[0][1])
        repaired.maintain()
        assert repaired.verify(deep=True).ok
        assert _offsets(repaired)[:-1] == [*range(5 + later)]


def test_staged_records_that_were_sealed_together_with_lost_ones_stand_in_their_segment(
    store: kmq.Store, tmp_path: Path
):
    send_rows(store.log, "t", [Sent(None, b"%d" % number) for number in range(3)], staged=True)
    store.checkpoint()
    _send(store, 3, 4)
    store.seal()
    with repaired_store(tmp_path) as repaired:
        assert _offsets(repaired) == [*range(5)]
        assert repaired.describe_topic("t").rows == 5


def test_a_partition_that_was_trimmed_before_begins_where_it_did(store: kmq.Store, tmp_path: Path):
    _send(store, *range(5))
    store.trim("t", {0: 2})
    store.checkpoint()
    _send(store, *range(5, 8))
    store.seal()
    with repaired_store(tmp_path) as repaired:
        assert _offsets(repaired) == [*range(2, 8)]
        assert repaired.offsets("t")[0][0] == 2
        assert repaired.describe_topic("t").rows == 6


def test_a_topic_has_as_many_records_as_it_says_behind_a_repair(store: kmq.Store, tmp_path: Path):
    _send(store, *range(5))
    store.seal()
    (log,) = (tmp_path / "log").glob("0*.log")
    _send(store, *range(5, 10))
    lost = log.read_bytes().rindex(MAGIC + b"\0")
    _send(store, *range(10, 15))
    store.seal()
    flip(log, lost + 20)
    with opened(tmp_path) as repaired:
        assert repaired.repair(drop_damaged=True).damage == []
        assert _offsets(repaired) == [*range(15)]
        info = repaired.describe_topic("t")
        assert (info.rows, info.bytes) == (15, 20)


def test_a_merged_segment_takes_no_place_of_one_that_the_checkpoint_has(
    store: kmq.Store, tmp_path: Path
):
    _send(store, *range(3))
    store.seal()
    _send(store, *range(3, 6))
    store.checkpoint()
    store.seal()
    store.compact("t")
    (sealed,) = (tmp_path / "segments").rglob(f"{3:020}-*.arrow")
    sealed.unlink()
    with repaired_store(tmp_path) as repaired:
        assert _offsets(repaired) == [*range(3)]


def test_what_a_compaction_left_out_takes_no_place_of_what_the_log_has(tmp_path: Path):
    with opened(tmp_path) as store:
        store.create_topic("t", cleanup="compact")
        send_rows(store.log, "t", [Sent(b"k", b"0"), Sent(b"l", b"1")], staged=True)
        store.checkpoint()
        _send(store, 2, key=b"k")
        store.seal()
        (sealed,) = (tmp_path / "segments").rglob("*.arrow")
        store.compact("t")
    sealed.unlink()
    with repaired_store(tmp_path) as repaired:
        assert _offsets(repaired) == [0, 1]  # 2 stands in no segment but one without 0


def test_a_damaged_segment_takes_no_place_of_what_the_log_has(store: kmq.Store, tmp_path: Path):
    send_rows(store.log, "t", [Sent(None, b"0"), Sent(None, b"1")], staged=True)
    store.checkpoint()
    _send(store, 2)
    store.seal()
    (segment,) = (tmp_path / "segments").rglob("*.arrow")
    flip(segment, segment.read_bytes().index(b"012"))
    with repaired_store(tmp_path) as repaired:
        assert _offsets(repaired) == [0, 1]
