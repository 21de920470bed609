"""Finds a repair of a segment that is wrong where a trim stands inside, or is not done with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.damage.bucket import read_around
from tests.support.damage import flip


def _sealed(store: kmq.Store, tmp_path: Path, values: list[bytes]) -> Path:
    """The only segment of a new topic `t`, which has these values."""
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", values).result(10)
    store.seal()
    (file,) = (tmp_path / "store" / "segments").rglob("*.arrow")
    return file


@pytest.mark.parametrize("start", [2, 5, 8])
@pytest.mark.parametrize("batch", [None, 0, 1])
def test_what_is_held_is_right_after_a_repair_of_a_segment_that_a_trim_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, batch: int | None
):
    monkeypatch.setattr("kmq_storage.limits.BATCH_ROWS_MAX", 5)
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            for _ in range(2):
                producer.send_batch("t", [b"v%d" % n for n in range(10)]).result(10)
                store.seal()
        store.trim("t", {0: start})
    file, _ = sorted((tmp_path / "store" / "segments").rglob("*.arrow"))
    if batch is None:
        file.unlink()
    else:
        flip(
            file, file.read_bytes().rindex(b"v%d" % (5 * batch)), 1
        )  # batches share what is before
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        assert store.repair(drop_damaged=True).ok
        assert store.describe_topic("t").rows == len(read_around(store, 0))


@pytest.mark.parametrize("start", [0, 2, 7, 10, 12, 17])
@pytest.mark.parametrize("lost", [(0,), (3,), (0, 2), (1, 2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("rows", [5, 20], ids=["batches", "a batch"])
def test_any_batches_of_a_segment_that_a_trim_cut_are_given_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, lost: tuple[int, ...], rows: int
):
    monkeypatch.setattr("kmq_storage.limits.BATCH_ROWS_MAX", rows)
    with kmq.open(tmp_path / "store", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        for first in (0, 20):
            values = [b"value-%02d" % n for n in range(first, first + 20)]
            producer.send_batch("t", values).result(10)
            store.seal()
        store.trim("t", {0: start})
    file, _ = sorted((tmp_path / "store" / "segments").rglob("*.arrow"))
    for batch in lost:
        flip(file, file.read_bytes().rindex(b"value-%02d" % (5 * batch)), 1)
    left = [
        n for n in range(start, 40) if n >= 20 or not {5 * b // rows for b in lost} & {n // rows}
    ]
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        assert store.repair(drop_damaged=True).ok
        assert store.verify(deep=True).ok
        assert [offset for offset, _ in read_around(store, 0)] == left
        assert store.describe_topic("t").rows == len(left)
        store.checkpoint()
        store.trim("t", {0: 40})
        assert (store.describe_topic("t").rows, store.describe_topic("t").bytes) == (0, 0)


@pytest.mark.parametrize("at", [12, -60])
def test_a_segment_that_a_trim_cut_is_written_again_whole(tmp_path: Path, at: int):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        file = _sealed(store, tmp_path, [b"v%d" % n for n in range(10)])
        store.trim("t", {0: 3})
    flip(file, at % file.stat().st_size, 1)
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        assert store.repair().ok
        assert store.read("t").read_all()["offset"].to_pylist() == list(range(3, 10))
        assert store.describe_topic("t").rows == 7


@pytest.mark.parametrize("at", [700, -60], ids=["head", "footer"])
def test_a_repair_without_loss_is_done_and_says_what_stood_there(tmp_path: Path, at: int):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        file = _sealed(store, tmp_path, [b"%d" % n for n in range(300)])
        store.checkpoint()
        flip(file, at % file.stat().st_size, 1)
        (damage,) = store.verify(deep=True).damage
        assert (damage.topic, damage.partition, damage.start, damage.end) == ("t", 0, 0, 300)
        assert store.repair().ok
        report = store.verify(deep=True)
        assert report.ok
        assert str(file.relative_to(tmp_path / "store")) in report.unreferenced
        assert store.read("t").read_all().num_rows == 300


def test_a_repair_takes_nothing_from_who_keeps_an_older_state(tmp_path: Path):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        file = _sealed(store, tmp_path, [b"%d" % n for n in range(300)])
        store.checkpoint()
        flip(file, 700, 1)
        with store.pin(3600.0):
            before = set((tmp_path / "store" / "checkpoints").iterdir())
            assert not store.repair().ok
            assert before <= set((tmp_path / "store" / "checkpoints").iterdir())
