"""A bounded number of random damages of buckets and disks.

`python -m tests.damage.bucket_fuzz`, and `disk_fuzz`, have more.

Finds: offsets that are given out twice behind a repair, records that vanish in silence, stores
that a repair leaves damaged or closed.
"""

from __future__ import annotations

import pytest

from kmq_storage.objects import read_cache
from tests.damage.bucket_fuzz import wrong_with
from tests.damage.disk_fuzz import DiskFuzz


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_no_offset_is_given_out_twice_and_no_record_vanishes_in_silence(first: int):
    assert [wrong for seed in range(first, first + 4) if (wrong := wrong_with(seed))] == []


def test_nor_where_objects_are_too_large_to_be_fetched_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(read_cache, "HEAD_BYTES", 64)
    assert [wrong for seed in range(12, 16) if (wrong := wrong_with(seed))] == []


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_nor_on_a_disk(first: int):
    found = [wrong_with(seed, DiskFuzz) for seed in range(first, first + 4)]
    assert list(filter(None, found)) == []
