"""A few power cuts, as every run of the tests has them; `power_cut.py` does many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.chaos.power_cut import run
from tests.support.loop_disk import LoopDisk, missing_loop_disk

pytestmark = pytest.mark.chaos


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder where a file system can be mounted; else the test is skipped, with the reason."""
    reason = missing_loop_disk()
    if not reason:
        try:
            (tmp_path / "trial").mkdir()
            disk = LoopDisk(tmp_path / "trial", megabytes=8)
            disk.mount()
            disk.unmount()
        except OSError as error:
            reason = str(error)
    if reason:
        pytest.skip(reason)
    return tmp_path


def test_power_cuts_in_the_middle_of_writes_lose_nothing_that_was_acknowledged(place: Path):
    told = run(place, cuts=2, seed=2)
    assert told.wrong == []
    assert told.found >= len(told.acked) >= 200


@pytest.fixture
def small_disk(place: Path) -> Iterator[LoopDisk]:
    """An ext4 of 24 MiB."""
    disk = LoopDisk(place, megabytes=24)
    disk.mount()
    yield disk
    disk.unmount(lazy=True)


@pytest.mark.parametrize("size", [30_000, 700_000])
def test_a_full_disk_refuses_what_does_not_fit_and_goes_on_when_there_is_room(
    small_disk: LoopDisk, size: int
):
    ballast = small_disk.root / "ballast"
    ballast.write_bytes(bytes(6 << 20))
    stored: list[bytes] = []
    with kmq.open(small_disk.root / "store", maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer, pytest.raises(kmq.UnavailableError, match="is full"):
            for number in range(100_000):
                values = [b"%d:" % number + bytes(size)] * 3  # inside the log, or staged beside it
                producer.send_batch("t", values).result()
                stored += values
        ballast.unlink()
        with store.producer() as producer:
            producer.send("t", b"goes on").result()
    with kmq.open(small_disk.root / "store", read_only=True) as store:
        values = store.read("t", columns=["value"]).read_all()["value"].to_pylist()
        assert values == [*stored, b"goes on"]
        assert store.verify(deep=True).damage == []
