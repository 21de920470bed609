"""Blocks that the disk can't read: a btrfs refuses those whose checksum is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.support.loop_disk import LoopDisk, missing_loop_disk

pytestmark = pytest.mark.chaos

#: A record in the middle of what stands in a segment, in a staged file, and in the log itself.
_MARKS = {"sealed": b"sealed-1500:", "staged": b"staged-1500:", "log": b"log-100:"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    """A btrfs that is mounted; else the test is skipped, with the reason."""
    if reason := missing_loop_disk("btrfs"):
        pytest.skip(reason)
    disk = LoopDisk(tmp_path, megabytes=400, kind="btrfs")
    try:
        disk.mount()
    except OSError as error:
        pytest.skip(str(error))
    yield disk
    disk.unmount(lazy=True)


def _made(url: Path) -> None:
    with kmq.open(url, maintenance=False) as store, store.producer() as producer:
        for topic in _MARKS:
            store.create_topic(topic)
        for first in (0, 2000, 4000):
            rows = range(first, first + 2000)
            producer.send_batch("sealed", [_value("sealed", row) for row in rows]).result()
        store.seal()
        store.checkpoint()
        for first in (0, 2000, 4000):
            rows = range(first, first + 2000)
            producer.send_batch("staged", [_value("staged", row) for row in rows]).result()
        for row in range(200):
            producer.send("log", _value("log", row)).result()


def _value(topic: str, row: int) -> bytes:
    return f"{topic}-{row}:".encode() + os.urandom(1000)


def _is_right(topic: str, offset: int, value: bytes) -> bool:
    return value.startswith(f"{topic}-{offset}:".encode())


def _read(store: kmq.Store, topic: str) -> tuple[int, list[str]]:
    """How many records are read, each at its offset, and what kept others from being read."""
    rows, lost, (start, end) = 0, [], store.offsets(topic)[0]
    while start < end:
        try:
            for batch in store.read(topic, start={0: start}, columns=["offset", "value"]):
                offsets, values = (batch.column(name).to_pylist() for name in ("offset", "value"))
                assert all(map(_is_right, [topic] * len(values), offsets, values))
                rows, start = rows + len(values), offsets[-1] + 1
            start = end
        except (kmq.CorruptionError, kmq.DataLossError) as error:
            lost.append(type(error).__name__)
            start = error.context.get("end", end)
    return rows, lost


@pytest.mark.filterwarnings("ignore::kmq_spark.KmqWarning")
@pytest.mark.parametrize("where", _MARKS)
def test_a_block_that_can_not_be_read_is_named_and_given_up_and_all_else_is_read(
    disk: LoopDisk, where: str
):
    url = disk.root / "store"
    _made(url)
    disk.unmount()
    disk.damage(_MARKS[where])
    disk.mount()
    with kmq.open(url, maintenance=False) as store:
        before = {topic: _read(store, topic) for topic in _MARKS}
        report = store.verify(deep=True)
        assert {damage.topic for damage in report.damage} >= {where}
        assert store.repair(drop_damaged=True).ok
    with kmq.open(url, maintenance=False) as store:
        after = {topic: _read(store, topic) for topic in _MARKS}
        store.seal()
    assert [rows for rows, _ in after.values()] == [rows for rows, _ in before.values()]
    assert before[where][1] == ["CorruptionError"]
    assert after[where][1] == ["DataLossError"]
