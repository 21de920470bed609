"""The golden store of deleted topics says for ever where they ended, and what had been read."""

from __future__ import annotations

from pathlib import Path

import kmq_spark as kmq
from kmq_storage.log.checkpoints.checkpoint import newest_checkpoint
from kmq_storage.log.state.gone_topics import GoneTopic
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden_gone import FIRST, SECOND, make
from tests.support.golden import DATA, in_each_kind

GOLDEN = DATA / "format-1-gone"
folder = in_each_kind(GOLDEN, make)


def test_the_golden_store_knows_its_deleted_topics(folder: Path) -> None:
    with kmq.open(folder) as store:
        gone = store.log.refresh().gone
        assert list(gone) == [
            GoneTopic(FIRST, "orders", (0, 10), {"reader": {1: 3}}),
            GoneTopic(SECOND, "orders", (0, 4), {"reader": {1: 3}}),
        ]
        assert gone.left_by("reader")["orders"][0].id == SECOND
        assert store.verify(deep=True).ok


def test_its_checkpoint_has_the_first_of_them() -> None:
    found = newest_checkpoint(LocalDisk(GOLDEN))
    assert found is not None
    assert found.members["gone"] == [[FIRST.hex(), "orders", [0, 10], {"reader": [[1, 3]]}]]
