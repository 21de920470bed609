"""Small files that are staged together in a bucket: their uploads overlap."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import pytest

from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import Bytes
from tests.support.memory_bucket import MemoryBucket

NEW = [(f"segments/{n}.arrow", [b"%d" % n, b"!"]) for n in range(20)]


class _SlowBucket(MemoryBucket):
    """A bucket whose uploads take some time; notes how many run at once."""

    def __init__(self) -> None:
        super().__init__("memory://together/store")
        self.running = self.most = 0
        self.refused = ""

    def put(self, name: str, buffers: Iterable[Bytes]) -> None:
        with self._guard:
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(0.01)
        with self._guard:
            self.running -= 1
        if name == self.refused:
            raise OSError("no answer")
        super().put(name, buffers)


@pytest.fixture
def bucket() -> _SlowBucket:
    return _SlowBucket()


def test_uploads_of_files_that_are_staged_together_overlap(bucket: _SlowBucket):
    files = BucketFiles(bucket)
    files.stage_together(NEW)
    assert 1 < bucket.most <= files.uploads
    assert {name: bucket.objects[name] for name, _ in NEW} == {
        name: b"".join(parts) for name, parts in NEW
    }


def test_when_one_upload_fails_none_of_the_files_is_there(bucket: _SlowBucket):
    bucket.refused = NEW[3][0]
    with pytest.raises(OSError, match="no answer"):
        BucketFiles(bucket).stage_together(NEW)
    assert bucket.running == 0
    assert bucket.objects == {}


def test_one_file_is_uploaded_by_the_caller_as_it_is_read(bucket: _SlowBucket):
    threads = []

    def pieces() -> Iterable[bytes]:
        threads.append(threading.current_thread())
        yield b"x"

    BucketFiles(bucket).stage_together([("segments/1.arrow", pieces())])
    assert threads == [threading.current_thread()]
    assert bucket.objects == {"segments/1.arrow": b"x"}
