"""Finds a store that was brought from a disk to a bucket, or back, and seems empty there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.open import open_files
from tests.support.s3 import S3Server

FOLDERS = ("log", "checkpoints", "pages", "segments")


def _fill(url: str | Path, options: Mapping[str, str] | None, *, checkpoint: bool) -> None:
    with kmq.open(url, storage_options=options, maintenance=False) as store:
        store.create_topic("t")
        for value in (b"1", b"2"):
            with store.producer() as producer:
                producer.send("t", value).result(10)
            if checkpoint and value == b"1":
                store.seal()
                store.checkpoint()


def _bucket(url: str, server: S3Server) -> BucketFiles:
    files = open_files(url, storage_options=server.options())
    assert isinstance(files, BucketFiles)
    return files


def _upload(folder: Path, files: BucketFiles) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            files.bucket.put(path.relative_to(folder).as_posix(), [path.read_bytes()])


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_files_of_a_disk_in_a_bucket_are_refused(
    moto: S3Server, tmp_path: Path, checkpoint: bool
):
    _fill(tmp_path / "store", None, checkpoint=checkpoint)
    url = moto.new_url()
    _upload(tmp_path / "store", _bucket(url, moto))
    for read_only in (False, True):
        with pytest.raises(kmq.InvalidRequestError, match=r"1\.log.*`kmq copy`"):
            kmq.open(url, read_only=read_only, storage_options=moto.options())


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_objects_of_a_bucket_in_a_folder_are_refused(
    moto: S3Server, tmp_path: Path, checkpoint: bool
):
    url = moto.new_url()
    _fill(url, moto.options(), checkpoint=checkpoint)
    files = _bucket(url, moto)
    for name in ("kmq.json", *(found.path for each in FOLDERS for found in files.walk(each))):
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files.bucket.get(name).data)
    with pytest.raises(kmq.InvalidRequestError, match=r"\.kmq.*`kmq copy`"):
        kmq.open(tmp_path / "store")


def test_a_store_without_commits_can_be_brought_to_a_bucket(moto: S3Server, tmp_path: Path):
    kmq.open(tmp_path / "store", maintenance=False).close()
    url = moto.new_url()
    name = "kmq.json"
    _bucket(url, moto).bucket.put(name, [(tmp_path / "store" / name).read_bytes()])
    with kmq.open(url, storage_options=moto.options(), maintenance=False) as store:
        assert store.topics() == []
