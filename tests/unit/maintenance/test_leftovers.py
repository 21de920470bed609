"""Files in a store's folder that no commit named.

What a process leaves beside `kmq.json` that dies while it makes a store, or writes it again, goes.
Files of other programs, and other stores, stay.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.objects.local import LocalDisk
from tests.support.dying_disk import Died
from tests.support.storage import collect_all

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


def test_files_of_others_in_folders_that_have_names_of_ours_stay(tmp_path: Path):
    folders = ("pages", "segments", "segments/x/0", "staged", "slips", "checkpoints", "log", "pins")
    others = [tmp_path / folder / "index.html" for folder in folders]
    for file in others:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"a page of a site")
    _make_older(*others)
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        store.checkpoint()
        assert store.collect(grace=0).files == 0
        assert store.stats().garbage_files == 0
        assert set(store.verify().unreferenced) == {str(x.relative_to(tmp_path)) for x in others}


@pytest.mark.parametrize("name", ["own", "segments/x", "checkpoints", "slips", "staged", "log/x"])
@pytest.mark.parametrize("scheme", ["", "s3"])
def test_a_store_inside_of_another_one_stays_whole_and_is_told(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, scheme: str
):
    moto = request.getfixturevalue("moto") if scheme else None
    url, options = (moto.new_url(), moto.options()) if moto else (tmp_path / "outer", None)
    with kmq.open(url, storage_options=options, maintenance=False) as outer:
        outer.create_topic("t")
        for _ in range(2):
            with kmq.open(f"{url}/{name}", storage_options=options, maintenance=False) as inner:
                inner.create_topic("t")
                with inner.producer() as producer:
                    producer.send_batch("t", [bytes(1000)] * 3000).result()
                inner.seal()
                inner.checkpoint()
        before = _all(inner)
        outer.checkpoint()  # into the folder of the inner one, if that is in `checkpoints`
        collect_all(outer.log, -DAY)  # as if all were older than a day
        assert before <= _all(inner)
        report = outer.verify(deep=True)
        assert (report.ok, report.unreferenced) == (True, [])
        assert any(f"{name}/kmq.json: another store" in note for note in report.notes)


def _all(store: kmq.Store) -> set[str]:
    return {file.path for file in store.log.files.walk("")}
