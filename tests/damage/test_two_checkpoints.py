"""Checkpoints behind a repair. Finds: one whose damage costs the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.damage.store import make_store
from tests.damage.test_repair import check_contents, frame_with, harmed
from tests.support.damage import flip


@pytest.mark.parametrize("value", [b"inside 2", b"again"])
def test_two_checkpoints_stand_after_a_repair_and_either_is_enough(tmp_path: Path, value: bytes):
    folder = tmp_path / "store"
    expected = make_store(folder)
    harmed(folder, frame_with(value)(folder))
    with kmq.open(folder) as store:
        assert store.repair(drop_damaged=True).ok
        lost = check_contents(store, expected)
        older, newest = sorted((folder / "checkpoints").iterdir())
    flip(newest, newest.stat().st_size // 2)
    with kmq.open(folder) as store:
        assert check_contents(store, expected) == lost
        assert store.repair().ok
    older.unlink()
    with kmq.open(folder) as store:
        assert check_contents(store, expected) == lost
