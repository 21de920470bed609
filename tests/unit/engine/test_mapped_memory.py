"""Finds readers that keep what they read in the memory of their process."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.log.reading import proving, reader, scan
from kmq_storage.objects import mapping
from kmq_storage.objects.mapping import being_read, brought_in, is_mapped, mapped_file

_MIB = 1024 * 1024
_SEGMENT = 32 * _MIB


def _mapped_bytes(folder: Path) -> int:
    """How much of the files below a folder counts as memory of this process."""
    total, is_below = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_below = str(folder) in line
        elif is_below and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def test_of_a_long_segment_only_what_was_read_last_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "STAGED_BATCH_BYTES", _MIB)
    monkeypatch.setattr(scan, "_JOINED_BYTES", _MIB)  # or batches are so large that few are enough
    monkeypatch.setattr(reader, "_TOUCHED_BYTES", 4 * _MIB)
    with kmq.open(tmp_path / "s", maintenance=False) as store:
        store.create_topic("t")
        with store.producer(durability="os") as producer:
            for _ in range(_SEGMENT // _MIB):
                producer.send_batch("t", [bytes(_MIB // 64)] * 64).result()
        store.seal()
        most = max(_mapped_bytes(tmp_path / "s" / "segments") for _ in store.read("t"))
    assert most < 16 * _MIB  # two maps at a time


def test_maps_may_end_while_memory_is_told_from_them(tmp_path: Path):
    file, threshold = tmp_path / "file", gc.get_threshold()
    file.write_bytes(b"x")
    kept = [mapped_file(str(file)) for _ in range(2 * threshold[0])]
    for _ in range(9):
        garbage = SimpleNamespace(contents=mapped_file(str(file)))
        garbage.itself = garbage
        del garbage
        assert not is_mapped(pa.py_buffer(b"x"))
    assert all(map(is_mapped, kept[:9]))


def test_who_goes_on_reading_queues_keeps_no_files_that_were_removed(tmp_path: Path):
    with kmq.open(tmp_path / "s", maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        for _ in range(20):
            queues.put_batch(["a", "b"], [b"message 1", b"message 2"])
            store.seal()
            assert queues.get_many(["a", "b"], 0, 99).num_rows
        store.maintain(grace=0)
        assert queues.get_many(["a", "b"], 0, 99).num_rows == 40
        gc.collect()
        kept = [path for _, path in mapping._LIVING.values() if path.startswith(store.url)]
        assert all(map(os.path.exists, kept))


def test_bytes_at_a_random_place_are_read_without_those_around_them(tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(bytes(4 * _MIB))
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    contents = mapped_file(str(file))
    if _in_memory(contents):
        pytest.skip("this file system keeps files in memory")
    brought_in(being_read(contents.slice(2 * _MIB, 65_536)))
    assert _in_memory(contents) == 65_536


def _in_memory(contents: pa.Buffer) -> int:
    """How many bytes of a mapped file are in memory, wherever they are mapped."""
    pages = ctypes.create_string_buffer(contents.size // mmap.PAGESIZE)
    assert mapping._mincore(contents.address, contents.size, pages) == 0
    return sum(page & 1 for page in pages.raw) * mmap.PAGESIZE


def test_what_a_get_needs_of_several_runs_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with kmq.open(tmp_path / "s", maintenance=False) as store:
        queues = store.keyed_queues("q")
        for number in range(3):
            queues.put("a", b"%d" % number)
            queues.flush()
            store.seal()
        queues.names()  # opens the runs
        steps = list[str]()
        for module, name, step in (
            (reader, "being_read", "begin "),
            (reader, "brought_in", "wait "),
            (proving, "brought_in", "wait "),
        ):
            monkeypatch.setattr(module, name, _noted(getattr(module, name), step, steps))
        assert queues.get("a", 0, 9) == [b"0", b"1", b"2"]
    directories, values = "begin " * 2, "begin wait begin " * 3
    assert "".join(steps).startswith(directories + values + "wait ")


def _noted(
    call: Callable[[pa.Buffer], pa.Buffer], step: str, steps: list[str]
) -> Callable[[pa.Buffer], pa.Buffer]:
    def noted(contents: pa.Buffer) -> pa.Buffer:
        steps.append(step)
        return call(contents)

    return noted
