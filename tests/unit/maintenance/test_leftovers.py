"""What a process leaves beside `kmq.json` that dies while it makes a store, or writes it again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.objects.local import LocalDisk
from tests.support.dying_disk import Died

DAY = 24 * 3600


def _die(*_: object) -> None:
    raise Died


def _left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    disk = LocalDisk(folder)
    with monkeypatch.context() as killed:
        for name in ("link", "unlink", "rename"):
            killed.setattr(os, name, _die)
        with pytest.raises(Died):
            disk.publish("kmq.json", [b"{}"], sync=True)
        with pytest.raises(Died):
            disk.replace_log("kmq.json", 2, [b"{}"])
    return {path.name for path in folder.iterdir()}


def _make_older(*files: Path) -> None:
    for file in files:
        os.utime(file, (0, time.time() - DAY - 60))


def test_what_was_to_become_a_store_file_goes_when_it_is_old_and_no_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    left = _left(tmp_path, monkeypatch)
    assert len(left) == 2
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        store.checkpoint()
        assert store.collect().files == 0
        assert left <= set(store.verify().unreferenced)
        _make_older(*(tmp_path / name for name in left))
        assert store.collect().files == 2
        assert store.verify().unreferenced == []


def test_files_of_others_beside_the_store_file_stay_however_old_they_are(tmp_path: Path):
    others = [tmp_path / name for name in ("notes.tmp", "tmp.tmp", "kmq.json.bak")]
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        store.checkpoint()
        for file in others:
            file.write_bytes(b"x")
        _make_older(*others)
        store.collect()
    assert all(file.exists() for file in others)
