"""Finds keys whose newest record is not found, or that take memory by how they are spread."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kmq_storage.maintenance import newest
from kmq_storage.maintenance.newest import KEYED, newest_offsets

_ROWS = 5_000
_BATCHES = 100
_GATHERED = 1024 * 1024


def _batch(first: int, keys: list[bytes]) -> pa.RecordBatch:
    offsets = pa.array(range(first, first + len(keys)), pa.int64())
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), offsets], schema=KEYED)


def _found(batches: list[pa.RecordBatch], rows: int) -> list[int]:
    return sorted(np.concatenate(list(newest_offsets(batches, rows=rows))).tolist())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gathered", [1, 500, 20_000])
def test_of_each_key_the_newest_is_found_however_little_is_held(
    seed: int, gathered: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(newest, "_GATHERED_BYTES", gathered)
    rng = random.Random(seed)
    keys = [rng.randbytes(rng.choice([0, 3, 40])) for _ in range(200)]
    sent = [rng.choice(keys) for _ in range(2_000)]
    batches = [_batch(first, sent[first : first + 100]) for first in range(0, 2_000, 100)]
    batches.append(_batch(2_000, []))
    wanted = sorted({key: offset for offset, key in enumerate(sent)}.values())
    assert _found(batches, rng.choice([1, 2_000, 10**9])) == wanted


def test_keys_that_no_hash_tells_apart_are_told_apart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(newest, "_GATHERED_BYTES", 200)
    monkeypatch.setattr(newest, "murmur2", lambda keys: np.zeros(len(keys), np.uint32))
    batches = [_batch(first, [b"%d" % n for n in range(50)]) for first in (0, 50, 100)]
    assert _found(batches, 150) == list(range(100, 150))


def test_a_process_that_is_killed_leaves_no_file_behind(tmp_path: Path):
    script = """
        import itertools, os, signal, pyarrow as pa
        from kmq_storage.maintenance.newest import KEYED, newest_offsets
        def batches():
            for first in itertools.count(0, 50_000):
                keys = pa.array([b"%020d" % n for n in range(first, first + 50_000)], pa.binary())
                yield pa.record_batch([keys, pa.array(range(first, first + 50_000))], schema=KEYED)
                written = [os.fstat(int(fd)).st_size for fd in os.listdir("/proc/self/fd")[:-1]]
                if max(written) > 1_000_000:
                    os.kill(os.getpid(), signal.SIGKILL)
        list(newest_offsets(batches(), rows=10**9))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def _one(number: int) -> bytes:
    return b"the only key that there is"


def _growing(number: int) -> bytes:
    return b"%d" % number if number < _ROWS else b"%d" % (number % 200) + b"x" * 400


def _distinct(number: int) -> bytes:
    return b"key %020d" % number


@pytest.mark.parametrize("key", [_one, _growing, _distinct])
def test_what_is_held_does_not_follow_how_keys_are_spread_or_how_long_they_become(
    key: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(newest, "_GATHERED_BYTES", _GATHERED)
    before, most = pa.total_allocated_bytes(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for first in range(0, _ROWS * _BATCHES, _ROWS):
            yield _batch(first, [key(number) for number in range(first, first + _ROWS)])
            most = max(most, pa.total_allocated_bytes() - before)

    found = sum(len(offsets) for offsets in newest_offsets(batches(), rows=_ROWS * _BATCHES))
    assert found == len({key(number) for number in range(_ROWS * _BATCHES)})
    assert most < 8 * _GATHERED
