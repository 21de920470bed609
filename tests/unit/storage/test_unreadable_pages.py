"""Pages that the disk can't read: looking at them through a map kills, unless asked for first.

What a map has behind the end of a file that was cut is as unreadable as a bad block.
"""

from __future__ import annotations

import errno
import os
import platform
from mmap import PAGESIZE
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.log.reading import reader as log_reader
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.maintenance.pins import Pin, encode_pin
from kmq_storage.objects import cache_folder, file_io, mapped_words
from kmq_storage.objects.bucket import Fetched
from kmq_storage.objects.cache_folder import CacheFolder
from kmq_storage.objects.mapped_log import MappedLogFile
from kmq_storage.objects.mapping import brought_in, is_readable, mapped

_KERNEL = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or _KERNEL < (5, 14),
    reason="only Linux 5.14 and newer can say that a page can't be read",
)


def test_what_the_disk_can_not_read_of_a_map_is_zeros_and_all_else_as_it_is(tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * 5 * PAGESIZE)
    with file.open("rb") as opened:
        contents = mapped(opened.fileno(), 5 * PAGESIZE, str(file))
    os.truncate(file, 3 * PAGESIZE)
    found = brought_in(contents.slice(PAGESIZE + 5)).to_pybytes()
    assert found == b"x" * (2 * PAGESIZE - 5) + bytes(2 * PAGESIZE)


def test_what_can_be_read_of_a_map_is_told_from_what_can_not(tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * 2 * PAGESIZE)
    with file.open("rb") as opened:
        contents = mapped(opened.fileno(), 2 * PAGESIZE, str(file))
    os.truncate(file, PAGESIZE)
    assert is_readable(contents.slice(0, PAGESIZE))
    assert not is_readable(contents.slice(PAGESIZE - 1))
    assert is_readable(contents.slice(PAGESIZE, 0))


def test_a_log_file_is_read_around_a_block_that_can_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "log"
    file.write_bytes(b"x" * 4 * PAGESIZE)
    log = MappedLogFile(str(file), read_only=True)
    pread, bad = os.pread, 2 * PAGESIZE

    def short_then_failing(fd: int, length: int, position: int) -> bytes:
        if position <= bad < position + length:
            if position == bad:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            length = bad - position
        return pread(fd, length, position)

    monkeypatch.setattr(file_io.os, "pread", short_then_failing)
    found = log.read(10, 4 * PAGESIZE)
    assert found == b"x" * (bad - 10) + bytes(PAGESIZE) + b"x" * PAGESIZE


def test_a_torn_tail_that_can_not_be_read_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "log"
    file.write_bytes(b"x" * 4 * PAGESIZE)
    log = MappedLogFile(str(file), read_only=False)

    def failing(fd: int, length: int, position: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(file_io.os, "pread", failing)
    with pytest.raises(OSError, match="Input/output error"):
        log.clear_from(0)
    assert file.read_bytes() == b"x" * 4 * PAGESIZE


def test_a_kept_part_of_a_bucket_that_the_disk_can_not_read_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    part, data = ("segments/t/0/1-ab.arrow", 0, 3), pa.py_buffer(b"x" * 5 * PAGESIZE)
    cache = CacheFolder(tmp_path / "cache", "s3://b/one", 1 << 20)
    cache.put(part, Fetched(data, data.size))
    mapped_whole = cache_folder.mapped_file

    def mapped_then_cut(path: str) -> pa.Buffer:
        contents = mapped_whole(path)
        os.truncate(path, PAGESIZE)
        return contents

    monkeypatch.setattr(cache_folder, "mapped_file", mapped_then_cut)
    assert cache.get(part) is None
    assert list((tmp_path / "cache").rglob("??/*")) == []


def test_a_pin_and_a_store_file_that_the_disk_can_not_read_are_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with kmq.open(tmp_path / "s", maintenance=False) as store:
        store.create_topic("t")
        pin = tmp_path / "s" / "pins" / f"{'7' * 32}.json"
        pin.parent.mkdir()
        pin.write_bytes(encode_pin(Pin(1, 2**62)))
        for file in (pin, tmp_path / "s" / "kmq.json"):
            _Unreadable(file, monkeypatch)
            (damage,) = store.verify(deep=True).damage
            assert damage.file == str(file.relative_to(tmp_path / "s"))
            if file == pin:
                assert store.repair().ok
                assert not pin.exists()
            else:
                with pytest.raises(kmq.CorruptionError, match=r"kmq\.json"):
                    kmq.open(tmp_path / "s")
            monkeypatch.undo()


class _Unreadable:
    """A disk that can't read one file until it is written; stands in for `os.pread`."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._inode = file.stat().st_ino
        #: Whether somebody was told so, and did not look at it through a map.
        self.was_asked = False
        self._pread, self._pwrite = os.pread, os.pwrite
        monkeypatch.setattr(mapped_words.os, "pread", self.pread)
        monkeypatch.setattr(mapped_words.os, "pwrite", self.pwrite)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        if os.fstat(fd).st_ino == self._inode:
            self.was_asked = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._pread(fd, length, position)

    def pwrite(self, fd: int, data: bytes, position: int) -> int:
        if os.fstat(fd).st_ino == self._inode:
            self._inode = 0
        return self._pwrite(fd, data, position)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_hint_page_that_the_disk_can_not_read_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
):
    with kmq.open(tmp_path / "s", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        producer.send("t", b"before").result()
    page = tmp_path / "s" / "log" / "hint"
    said = page.read_bytes()
    disk = _Unreadable(page, monkeypatch)
    with kmq.open(tmp_path / "s", maintenance=False, read_only=read_only) as store:
        if not read_only:
            with store.producer() as producer:
                producer.send("t", b"after").result()
        values = store.read("t", columns=["value"]).read_all()["value"].to_pylist()
    assert disk.was_asked
    assert values == ([b"before"] if read_only else [b"before", b"after"])
    monkeypatch.undo()
    assert (page.read_bytes() == said) == read_only


@pytest.mark.parametrize("where", ["segments", "staged"])
def test_records_that_the_disk_can_not_read_are_damage(tmp_path: Path, where: str):
    with kmq.open(tmp_path / "s", maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send_batch("t", [b"x" * 1000] * 2000).result()
        if where == "segments":
            store.seal()
        (place,) = store.log.refresh().topic("t").places(0, 0, 2000, 4)
        reader = ChunkReader(store.log.files)
        (chunk,) = reader.chunks(place, "t", 0)
        assert reader.read(chunk, 0, 2000).num_rows == 2000
        (file,) = (tmp_path / "s" / where).rglob("*.*")
        os.truncate(file, PAGESIZE)
        with pytest.raises(kmq.CorruptionError, match="t-0, offsets 0 to 1999"):
            reader.read(chunk, 0, 2000, topic="t", partition=0)


def test_single_records_are_brought_in_with_their_neighbours_up_to_what_can_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    looks: list[int] = []

    def counting(contents: pa.Buffer) -> bool:
        looks.append(contents.size)
        return is_readable(contents)

    monkeypatch.setattr(log_reader, "is_readable", counting)
    with kmq.open(tmp_path / "s", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        for _ in range(40):
            producer.send("t", b"x" * 3_000).result()
        topic = store.log.refresh().topic("t")
        rows = list(topic.index(0).rows(0, 40))
        file = rows[0].path((topic.id, 0))
        reader = ChunkReader(store.log.files)
        reader.message(rows[0].place((topic.id, 0)).location)  # it is mapped now
        assert all(reader.known_bytes(file, row) for row in rows)
        assert len(looks) == 3  # each of 64 KiB
        reader = ChunkReader(store.log.files)
        reader.message(rows[0].place((topic.id, 0)).location)
        (log,) = (tmp_path / "s" / "log").glob("*.log")
        whole, cut = log.stat().st_size, 12 * PAGESIZE
        os.truncate(log, cut)
        found = [reader.known_bytes(file, row) is not None for row in rows]
        assert found == [row.position + row.length <= cut for row in rows]
        os.truncate(log, whole)


def test_commits_that_the_disk_can_not_read_are_damage(tmp_path: Path):
    with kmq.open(tmp_path / "s", maintenance=False) as store:
        store.create_topic("t")
        with (
            kmq.open(tmp_path / "s", read_only=True) as other,
            store.producer() as producer,
        ):
            other.offsets("t")  # it has mapped the log
            for _ in range(10):
                producer.send("t", b"x" * 30_000).result()
            (log,) = (tmp_path / "s" / "log").glob("*.log")
            os.truncate(log, 131_072)  # elsewhere than it looked
            with pytest.warns(kmq.KmqWarning, match="are damaged"):
                (_, end) = other.offsets("t")[0]
            assert 0 < end < 10
            with pytest.raises(kmq.CorruptionError, match="damaged"):
                other.read("t").read_all()
