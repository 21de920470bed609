"""Any bit of a segment is another, and who looks for segments without a manifest reads it.

Finds: errors of libraries in place of damage, which end a verify or a repair.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.integrity.remains.segments import try_segment
from kmq_storage.objects.local import LocalDisk
from tests.support.damage import flip


@pytest.mark.parametrize("kind", ["topic", "queues"])
def test_whatever_bit_of_a_segment_is_another_who_looks_for_segments_goes_on(
    tmp_path: Path, kind: str
):
    with kmq.open(tmp_path, maintenance=False) as store:
        if kind == "topic":
            store.create_topic("t")
            with store.producer() as producer:
                producer.send("t", b"0")
        else:
            store.keyed_queues("t").put_batch(["a", "b"], [b"0", b"1"])
        store.seal()
    disk = LocalDisk(tmp_path)
    (found,) = disk.walk(paths.SEGMENT_FOLDER)
    segment = tmp_path / found.path
    size = segment.stat().st_size
    for at, bit in product(range(size // 2, size), (2, 8)):
        flip(segment, at, bit)
        with suppress(kmq.FormatVersionError):
            try_segment(disk, found)
        flip(segment, at, bit)
