"""The contract of `Files` on buckets. Finds servers and clients that keep less than a disk does."""

from __future__ import annotations

import pytest

from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.open import open_files
from tests.contract.files_contract import FilesContract
from tests.support.google import GoogleFront
from tests.support.memory_bucket import MemoryBucket
from tests.support.s3 import S3Server


class TestMemoryBucket(FilesContract):
    @pytest.fixture
    def files(self) -> BucketFiles:
        return BucketFiles(MemoryBucket("memory-bucket://files"))


class TestMoto(FilesContract):
    @pytest.fixture
    def files(self, moto: S3Server) -> BucketFiles:
        return _opened(moto)


class TestMotoByFsspec(FilesContract):
    @pytest.fixture
    def files(self, moto: S3Server) -> BucketFiles:
        url = moto.new_url().replace("s3://", "s3a://")  # which obstore is not asked for
        files = open_files(url, storage_options=moto.s3fs_options())
        assert isinstance(files, BucketFiles)
        assert "Fsspec" in repr(files.bucket)
        return files

    def test_a_folder_that_was_listed_shows_what_others_write_later(
        self, files: BucketFiles, moto: S3Server
    ):
        other = open_files(files.url, storage_options=moto.s3fs_options())
        for name in ("log/a", "log/b", "log/c"):
            other.publish(name, [b"x"], sync=True)
            assert [*files.walk("log")][-1].path == name


class TestAzurite(FilesContract):
    @pytest.fixture
    def files(self, azurite: S3Server) -> BucketFiles:
        return _opened(azurite)


class TestGoogle(FilesContract):
    @pytest.fixture
    def files(self, google: GoogleFront) -> BucketFiles:
        return _opened(google)


class TestVersitygw(FilesContract):
    @pytest.fixture
    def files(self, versitygw: S3Server) -> BucketFiles:
        return _opened(versitygw)


def _opened(server: S3Server | GoogleFront) -> BucketFiles:
    files = open_files(server.new_url(), storage_options=server.options())
    assert isinstance(files, BucketFiles)
    return files
