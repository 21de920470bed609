"""Idle memory of allocators.

Finds: a process that keeps hundreds of MiB after sorting a run, since what it freed stands in
pieces that nobody gives back.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kmq_storage.objects import allocators

_MIB = 1 << 20


def _resident() -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.skipif(allocators._trim is None, reason="another C library than glibc")
def test_memory_that_was_freed_in_pieces_is_given_back():
    blocks = [np.ones(64 * 1024, np.uint8) for _ in range(3200)]  # 200 MiB
    kept = blocks[::2]
    del blocks
    before = _resident()
    allocators.give_back()
    assert before - _resident() > 80 * _MIB
    assert all(block.all() for block in kept)
