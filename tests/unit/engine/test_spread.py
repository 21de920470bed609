"""How bytes are spread over offsets: what stays in memory for it."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.log.checkpoints import paging
from kmq_storage.log.index import manifest, spread
from kmq_storage.objects import mapping


def _forty_rows(tmp_path: Path) -> Path:
    """A store with a partition of 40 commits of a record, all of them in the manifest."""
    path = tmp_path / uuid.uuid4().hex
    with kmq.open(path, maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            for _ in range(40):
                producer.send_batch("t", [b"x"]).result()
        store.checkpoint()
    return path


def test_pages_stay_mapped_a_few_at_a_time_while_rows_are_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(paging, "PAGE_ROWS", 2)
    monkeypatch.setattr(paging, "_PAGE_ROWS_MIN", 1)
    monkeypatch.setattr(manifest, "_PAGES_KEPT", 1)
    monkeypatch.setattr(spread, "_PAGES_HELD", 3)
    pages: list[int] = []

    def counted(file: str) -> pa.Buffer:
        read = mapping.mapped_file(file)
        folder = str(Path(file).parent)
        pages.append(sum(path.startswith(folder) for _, path in mapping._LIVING.values()))
        return read

    path = _forty_rows(tmp_path)
    with kmq.open(path, maintenance=False, read_only=True) as store:
        monkeypatch.setattr("kmq_storage.objects.local.mapped_file", counted)
        indexes = [store.log.refresh().topic("t").index(0)]
        found = spread.spread_of(indexes, [b""], np.array([0]), np.array([40]))
    assert found.bases.tolist() == list(range(40))
    assert len(pages) == 20
    assert max(pages) <= 3 + 2  # those that are kept, and the one that is read


def test_of_very_many_rows_neighbours_come_as_one_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(paging, "PAGE_ROWS", 10)
    monkeypatch.setattr(paging, "_PAGE_ROWS_MIN", 1)
    monkeypatch.setattr(spread, "_ROWS_EXACT", 20)
    with kmq.open(_forty_rows(tmp_path), maintenance=False, read_only=True) as store:
        indexes = [store.log.refresh().topic("t").index(0)]
        whole = (indexes, [b""], np.array([0]), np.array([40]))
        exact = spread.spread_of(*whole)
        coarse = spread.spread_of(*whole, grain=5 * int(exact.bytes[0]))
    assert exact.bases.tolist() == list(range(40))
    assert coarse.bases.tolist() == [*range(20), 20, 25, 30, 35]
    assert coarse.ends.tolist() == [*range(1, 21), 25, 30, 35, 40]
    for column in ("bytes", "weights"):
        rows, joined = getattr(exact, column), getattr(coarse, column)
        assert joined.tolist() == [*rows[:20], *rows[20:].reshape(4, 5).sum(1)]
    assert coarse.owners.tolist() == [0] * 24
