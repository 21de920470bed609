"""The demo's folder: made by the demo, emptied by the demo, and nothing else is ever touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmq_spark.demo.folder import clean_folder
from kmq_storage.errors import InvalidRequestError


def test_what_an_earlier_run_left_is_gone_but_the_jars(tmp_path: Path):
    for _ in range(2):
        with clean_folder(str(tmp_path / "demo")) as folder:
            assert {entry.name for entry in folder.path.iterdir()} <= {".kmq-demo", "jars"}
            (folder.path / "store").mkdir()
            (folder.path / "delays.png").write_bytes(b"old")
            folder.jars.mkdir(exist_ok=True)
    assert folder.jars.exists()


def test_a_link_in_the_folder_is_removed_and_its_target_kept(tmp_path: Path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "file").write_text("mine")
    with clean_folder(str(tmp_path / "demo")) as folder:
        (folder.path / "link").symlink_to(tmp_path / "target")
    with clean_folder(str(tmp_path / "demo")):
        assert (tmp_path / "target" / "file").read_text() == "mine"
        assert not (tmp_path / "demo" / "link").is_symlink()


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path):
    (tmp_path / "other").write_text("mine")
    with (
        pytest.raises(InvalidRequestError, match="wasn't made by kmq demo"),
        clean_folder(str(tmp_path)),
    ):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["other"]


def test_a_file_and_a_bucket_are_refused(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    for name in (str(tmp_path / "file"), "s3://bucket/demo"):
        with pytest.raises(InvalidRequestError), clean_folder(name):
            pass


def test_two_demos_do_not_share_a_folder(tmp_path: Path):
    with (
        clean_folder(str(tmp_path)),
        pytest.raises(InvalidRequestError, match="Another kmq demo"),
        clean_folder(str(tmp_path)),
    ):
        pass
