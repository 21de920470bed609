"""How large a segment gets, and how many records its batches have."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import limits


def test_segments_and_their_batches_have_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "SEGMENT_BYTES", 1 << 20)
    with kmq.open(tmp_path, maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        for _ in range(20):
            producer.send_arrow("t", pa.table({"value": [b"x" * 10] * 20_000})).result()
        store.seal()
        store.compact("t")
        assert store.read("t").read_all().num_rows == 400_000
        segments = [*(tmp_path / "segments").rglob("*.arrow")]
        rows = []
        for segment in segments:
            with pa.memory_map(str(segment)) as mapped:
                file = pa.ipc.open_file(mapped)
                rows += [file.get_batch(n).num_rows for n in range(file.num_record_batches)]
    assert len(segments) > 5
    assert max(segment.stat().st_size for segment in segments) < 2 << 20
    assert 10_000 < max(rows) <= 65_536
