"""Staged files of a disk that wait to be synced together: none is named before it is on disk.

Finds a file that a commit would name though its write failed or was interrupted, and an error
that is told to somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import limits, paths
from kmq_storage.errors import UnavailableError
from kmq_storage.log.uploads import Together
from kmq_storage.objects.files import Bytes
from kmq_storage.objects.memory import MemoryDisk
from tests.support.engine import open_engine
from tests.support.failing_disk import FailingDisk

ONE, TWO, THREE = (bytes([n]) * 16 for n in range(3))


class _Disk(MemoryDisk):
    """Fails while a file is bad, and may be interrupted when files are there already."""

    def __init__(self) -> None:
        super().__init__("memory://staged")
        self.bad: set[str] = set()
        self.interrupted = False
        self.groups: list[int] = []

    def stage_together(self, files: Sequence[tuple[str, Iterable[Bytes]]]) -> None:
        if self.bad & {path for path, _ in files}:
            raise OSError("the disk is gone")
        super().stage_together(files)
        self.groups.append(len(files))
        if self.interrupted:
            raise KeyboardInterrupt


def _begin(later: Together, *file_ids: bytes) -> None:
    for each in file_ids:
        later.begin(each, pa.py_buffer(each))


def test_files_wait_until_one_is_needed_and_are_then_written_together():
    disk = _Disk()
    later = Together(disk)
    _begin(later, ONE, TWO)
    assert disk.files == {}
    later.wait_for([TWO])
    later.wait_for([ONE, TWO])
    assert disk.groups == [2]
    assert disk.files == {paths.staged_file(each): each for each in (ONE, TWO)}


@pytest.mark.parametrize(("name", "most"), [("STAGED_TOGETHER", 2), ("WRITE_BYTES", 32)])
def test_of_many_files_or_bytes_only_a_few_wait(
    monkeypatch: pytest.MonkeyPatch, name: str, most: int
):
    monkeypatch.setattr(limits, name, most)
    disk = _Disk()
    later = Together(disk)
    _begin(later, ONE, TWO, THREE)
    assert disk.groups == [2]
    later.wait_for([ONE, TWO])
    assert disk.groups == [2]
    later.wait_for([THREE])
    assert disk.groups == [2, 1]


def test_the_error_of_a_file_is_told_to_who_needs_that_one():
    disk = _Disk()
    later = Together(disk)
    disk.bad.add(paths.staged_file(TWO))
    _begin(later, ONE, TWO, THREE)
    later.wait_for([ONE])
    with pytest.raises(UnavailableError, match="the disk is gone"):
        later.wait_for([TWO])
    later.wait_for([THREE])
    assert disk.files == {paths.staged_file(each): each for each in (ONE, THREE)}


def test_files_whose_write_was_interrupted_are_written_again():
    disk = _Disk()
    later = Together(disk)
    _begin(later, ONE, TWO)
    disk.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        later.wait_for([ONE])
    disk.interrupted = False
    _begin(later, THREE)
    later.wait_for([THREE])
    later.wait_for([ONE, TWO])
    assert disk.groups == [2, 3]
    assert len(disk.files) == 3


def test_a_transaction_syncs_its_files_together_before_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TRANSACTION_MEMORY_BYTES", 10_000)
    disk = FailingDisk(tmp_path / "store")
    with kmq.open(disk.root, maintenance=False) as store:
        store.create_topic("t", partitions=20)
    store = open_engine(disk, file_bytes=limits.LOG_FILE_BYTES)
    with store.producer(durability="fsync") as producer:
        with producer.transaction() as tx:
            for number in range(20):
                tx.send("t", bytes(1_000), partition=number)
        assert 10 <= len(disk.list("staged")) <= 20
        assert disk.calls.count("stage synced") <= 2
    assert store.verify(deep=True).ok
