"""The golden store of Spark's writes stays readable: staged batches, applications, checkpoints."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import kmq_spark as kmq
from kmq_storage.log.checkpoints.checkpoint import newest_checkpoint
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden_spark import APPLICATIONS, KEY, make
from tests.data.making import rows
from tests.support.golden import DATA, golden_frames, in_each_kind

GOLDEN = DATA / "format-1-spark"
folder = in_each_kind(GOLDEN, make)


def test_the_golden_store_says_what_was_written(folder: Path) -> None:
    with kmq.open(folder) as store:
        state = store.log.refresh()
        assert list(state.batches.items()) == [("query", (1, 4)), ("job", (8, 5))]
        assert dict(state.batches) == APPLICATIONS
        assert store.describe_group("group").committed == {"totals": {0: 40}}
        found = store.read("totals").read_all()
        written = pa.table(rows(0, 40, KEY).batch)
        for name in written.column_names:
            assert found[name].to_pylist() == written[name].to_pylist()
        assert store.verify(deep=True).ok


def test_its_checkpoint_has_the_applications_in_order() -> None:
    found = newest_checkpoint(LocalDisk(GOLDEN))
    assert found is not None
    assert found.members["batches"] == [["job", 7, 3], ["query", 1, 4]]


def test_its_entries_encode_to_the_same_bytes() -> None:
    assert len(list(golden_frames(GOLDEN))) == 5
