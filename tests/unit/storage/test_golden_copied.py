"""The golden store of a copied queue stays readable, and says what the store says it came from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import kmq_spark as kmq
from kmq_storage.log.state.queues.snapshot import state_entry
from kmq_storage.maintenance.checkpointing import checkpoint
from tests.data.make_golden_copied import make
from tests.support.golden import DATA
from tests.support.storage import open_folder

COPIED, ORIGINAL = DATA / "format-1-copied", DATA / "format-1-queues"


def _queues(golden: Path, folder: Path, *, checkpointed: bool = False) -> list[Any]:
    shutil.copytree(golden, folder)
    if checkpointed:
        checkpoint(open_folder(folder))
    return [state_entry(queue, None) for queue in open_folder(folder).refresh().queues]


def test_the_golden_copy_has_the_queues_of_its_source(tmp_path: Path):
    assert _queues(COPIED, tmp_path / "copied") == _queues(ORIGINAL, tmp_path / "original")


def test_a_checkpoint_of_the_golden_copy_says_the_same(tmp_path: Path):
    expected = _queues(COPIED, tmp_path / "log")
    assert _queues(COPIED, tmp_path / "checkpoint", checkpointed=True) == expected


def test_receivers_get_the_same_of_the_golden_copy(tmp_path: Path):
    found = []
    for golden in (COPIED, ORIGINAL):
        shutil.copytree(golden, tmp_path / golden.name)
        with kmq.open(tmp_path / golden.name, create=False, maintenance=False) as store:
            received = store.queue("plain").receive(100)
            found.append([(e.topic, e.partition, e.offset, e.delivery_count) for e in received])
            assert store.verify(deep=True).ok
    assert found[0] == found[1]


def test_the_maker_makes_such_a_store(tmp_path: Path):
    make(tmp_path / "made")
    assert _queues(tmp_path / "made", tmp_path / "a") == _queues(COPIED, tmp_path / "b")
