"""What processes of one host keep of a bucket on disk. Finds bytes that are wrong or another
store's, and a folder that grows."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pyarrow as pa
import pytest

from kmq_storage.objects import cache_folder
from kmq_storage.objects.bucket import Fetched
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.cache_folder import CacheFolder
from tests.support.memory_bucket import MemoryBucket
from tests.support.open_files import open_files
from tests.support.storage import make_topic, open_log, send, values_of

SEGMENT = "segments/t/0/1-ab.arrow"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def _cache(folder: Path, url: str = "s3://b/one", max_bytes: int = 1 << 20) -> CacheFolder:
    return CacheFolder(folder, url, max_bytes)


def _fetched(data: bytes, size: int = 1000) -> Fetched:
    return Fetched(pa.py_buffer(data), size)


def _files(folder: Path) -> list[Path]:
    return list(folder.glob("kmq-cache/??/*"))


def test_another_process_finds_what_was_read(folder: Path):
    _cache(folder).put((SEGMENT, 5, 3), _fetched(b"abc"))
    found = _cache(folder).get((SEGMENT, 5, 3))
    assert found is not None
    assert (found.data.to_pybytes(), found.size) == (b"abc", 1000)
    assert _cache(folder).get((SEGMENT, 5, 4)) is None
    assert _cache(folder, "s3://b/two").get((SEGMENT, 5, 3)) is None


def test_names_that_may_be_used_again_are_not_kept(folder: Path):
    for name in ("log/0000000000000000/00000000000000000001.kmq", "kmq.json", "locks/a"):
        _cache(folder).put((name, 0, 3), _fetched(b"abc"))
    assert not folder.exists()


@pytest.mark.parametrize("at", [0, 9, -1])
def test_a_changed_byte_or_a_torn_file_is_not_used_and_goes(folder: Path, at: int):
    for broken in ("flipped", "torn"):
        _cache(folder).put((SEGMENT, 0, 3), _fetched(b"abc" * 100))
        (file,) = _files(folder)
        data = bytearray(file.read_bytes())
        data[at] ^= 1
        file.write_bytes(data if broken == "flipped" else data[:at])
        assert _cache(folder).get((SEGMENT, 0, 3)) is None
        assert _files(folder) == []


def test_what_was_used_longest_ago_goes_when_there_is_too_much(folder: Path):
    cache = _cache(folder, max_bytes=100_000)
    for number in range(30):
        cache.put((SEGMENT, number, 3), _fetched(bytes(10_000)))
        for age, file in enumerate(sorted(_files(folder), key=lambda path: path.stat().st_mtime)):
            os.utime(file, (age, age))  # as if each were read a second after the one before
        cache.get((SEGMENT, 0, 3))
    assert sum(file.stat().st_size for file in _files(folder)) <= 100_000
    kept = [number for number in range(30) if cache.get((SEGMENT, number, 3)) is not None]
    assert kept[0] == 0
    assert kept[1:] == list(range(31 - len(kept), 30))


@pytest.mark.parametrize("size", [3_000, 30_000])
def test_many_handles_together_keep_to_the_limit_at_every_moment(folder: Path, size: int):
    caches = [_cache(folder, max_bytes=100_000) for _ in range(8)]
    most = 0
    for number in range(100):
        caches[number % 8].put((SEGMENT, number, 3), _fetched(bytes(size)))
        most = max(most, sum(file.stat().st_size for file in _files(folder)))
    assert 100_000 - 2 * size < most <= 100_000


@pytest.mark.parametrize("count", [b"", b"\0" * 8, b"\xff" * 8, b"text"])
def test_a_wrong_count_of_what_is_there_is_put_right(folder: Path, count: bytes):
    cache = _cache(folder, max_bytes=100_000)
    for number in range(30):
        cache.put((SEGMENT, number, 3), _fetched(bytes(10_000)))
        if number == 5:
            (folder / "kmq-cache" / "used").write_bytes(count)
    assert cache.get((SEGMENT, 29, 3)) is not None
    assert sum(file.stat().st_size for file in _files(folder)) <= 160_000


def test_who_is_killed_while_it_makes_room_has_not_left_uncounted_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    class Killed(BaseException):
        pass

    def kill(handle: int, size: int) -> None:
        truncate(handle, size)
        raise Killed

    cache, truncate = _cache(folder, max_bytes=25_000), os.truncate
    cache.put((SEGMENT, 0, 3), _fetched(bytes(10_000)))
    monkeypatch.setattr(cache_folder.os, "truncate", kill)
    with pytest.raises(Killed):
        cache.put((SEGMENT, 1, 3), _fetched(bytes(10_000)))
    monkeypatch.undo()
    cache.put((SEGMENT, 2, 3), _fetched(bytes(10_000)))
    assert sum(file.stat().st_size for file in _files(folder)) <= 25_000


def test_a_disk_that_gives_a_new_file_no_size_keeps_neither_it_nor_its_descriptor(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(handle: int, size: int) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr(cache_folder.os, "truncate", refuse)
    _cache(folder).put((SEGMENT, 0, 3), _fetched(b"abc"))
    assert (_files(folder), open_files(folder)) == ([], [])


def test_who_is_stopped_while_it_counts_keeps_nobody_from_reading(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cache_folder, "_TRIES", 2)
    _cache(folder).put((SEGMENT, 0, 3), _fetched(b"abc"))
    with (folder / "kmq-cache" / "used").open("rb") as count:
        fcntl.flock(count, fcntl.LOCK_EX)
        _cache(folder).put((SEGMENT, 1, 3), _fetched(b"def"))
    assert _cache(folder).get((SEGMENT, 0, 3)) is not None
    assert _cache(folder).get((SEGMENT, 1, 3)) is None


def test_files_of_others_in_the_folder_are_neither_deleted_nor_written_nor_counted(folder: Path):
    theirs = [folder / "go" / "main.go", folder / "used", folder / "ab" / ("0" * 62)]
    for file in theirs:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"theirs" * 5_000)
    cache = _cache(folder, max_bytes=25_000)
    for number in range(5):
        cache.put((SEGMENT, number, 3), _fetched(bytes(10_000)))
    assert [file.read_bytes() for file in theirs] == [b"theirs" * 5_000] * 3
    assert len(_files(folder)) == 2


def test_what_is_read_stays_whole_when_another_process_makes_room(folder: Path):
    _cache(folder).put((SEGMENT, 0, 3), _fetched(b"abc" * 10_000))
    held = _cache(folder).get((SEGMENT, 0, 3))
    _cache(folder, max_bytes=20).put((SEGMENT, 1, 1), _fetched(b"x"))
    assert _cache(folder).get((SEGMENT, 0, 3)) is None
    assert held is not None
    assert held.data.to_pybytes() == b"abc" * 10_000


def test_a_folder_that_can_not_be_written_does_no_harm(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    cache = _cache(tmp_path / "file" / "cache")
    cache.put((SEGMENT, 0, 3), _fetched(b"abc"))
    assert cache.get((SEGMENT, 0, 3)) is None


def test_a_second_handle_fetches_no_staged_batch_again(folder: Path):
    class Counting(MemoryBucket):
        fetched = 0

        def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
            self.fetched += name.startswith("staged/")
            return super().get(name, start, length)

    bucket = Counting("memory-bucket://cached")
    log = open_log(BucketFiles(bucket))
    make_topic(log)
    for number in range(5):
        send(log, b"%d" % number * 100_000, staged=True)
    for _ in range(2):
        reader = open_log(BucketFiles(bucket, cache_folder=_cache(folder, bucket.url)))
        assert len(values_of(reader)) == 5
    assert bucket.fetched == 5
