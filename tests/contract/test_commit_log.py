"""The contract of `CommitLog` on every kind of place. Finds what one of them keeps differently."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.local import LocalDisk
from kmq_storage.objects.memory import memory_disk
from kmq_storage.objects.open import open_files
from tests.contract.log_contract import CommitLogContract, Open
from tests.support.google import GoogleFront
from tests.support.memory_bucket import MemoryBucket
from tests.support.s3 import S3Server
from tests.support.storage import open_log


class TestLocalDisk(CommitLogContract):
    @pytest.fixture
    def open_handle(self, tmp_path: Path) -> Open:
        return lambda read_only=False: open_log(
            LocalDisk(tmp_path / "store", read_only=read_only), file_bytes=8 << 20
        )


class TestMemory(CommitLogContract):
    @pytest.fixture
    def open_handle(self) -> Open:
        name = uuid.uuid4().hex
        return lambda read_only=False: open_log(
            memory_disk(name, read_only=read_only), file_bytes=8 << 20
        )


class TestMemoryBucket(CommitLogContract):
    @pytest.fixture
    def open_handle(self) -> Open:
        bucket = MemoryBucket("memory-bucket://log")
        return lambda read_only=False: open_log(BucketFiles(bucket, read_only=read_only))


class TestMoto(CommitLogContract):
    @pytest.fixture
    def open_handle(self, moto: S3Server) -> Open:
        return _handles_at(moto)


class TestMotoByFsspec(CommitLogContract):
    @pytest.fixture
    def open_handle(self, moto: S3Server) -> Open:
        url, options = moto.new_url().replace("s3://", "s3a://"), moto.s3fs_options()
        return lambda read_only=False: open_log(
            open_files(url, read_only=read_only, storage_options=options)
        )


class TestAzurite(CommitLogContract):
    @pytest.fixture
    def open_handle(self, azurite: S3Server) -> Open:
        return _handles_at(azurite)


class TestGoogle(CommitLogContract):
    @pytest.fixture
    def open_handle(self, google: GoogleFront) -> Open:
        return _handles_at(google)


class TestVersitygw(CommitLogContract):
    @pytest.fixture
    def open_handle(self, versitygw: S3Server) -> Open:
        return _handles_at(versitygw)


def _handles_at(server: S3Server | GoogleFront) -> Open:
    url, options = server.new_url(), server.options()
    return lambda read_only=False: open_log(
        open_files(url, read_only=read_only, storage_options=options)
    )
