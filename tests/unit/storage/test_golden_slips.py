"""The golden store of slips stays readable, and what was noted in it counts."""

from __future__ import annotations

import shutil
from pathlib import Path

import kmq_spark as kmq
from kmq_storage.format.queue_entries import Run
from kmq_storage.log.state.queues.queue import Slip
from kmq_storage.log.state.queues.snapshot import queues_snapshot
from kmq_storage.log.state.store_state import StoreState
from tests.data.make_golden_slips import FIRST, QUEUE, SECOND, make
from tests.support.storage import open_folder

GOLDEN = Path(__file__).resolve().parents[2] / "data" / "format-1-slips"


def _state(folder: Path) -> StoreState:
    return open_folder(folder, read_only=True).refresh()


def test_the_golden_slips_go_on_as_the_log_says(tmp_path: Path):
    shutil.copytree(GOLDEN, tmp_path / "store")
    with_checkpoint = _state(tmp_path / "store")
    queue = with_checkpoint.queue("q")
    until = queue.slips[FIRST].until
    assert queue.slips[FIRST] == Slip(2, until, (Run(QUEUE, 0, 4, 3, 1),))
    assert queue.slips[SECOND].taken
    assert queue.slips[SECOND].runs == (Run(QUEUE, 0, 7, 2, 1),)
    assert (queue.acked, queue.delivered) == (2, 9)
    shutil.rmtree(tmp_path / "store" / "checkpoints")
    assert queues_snapshot(_state(tmp_path / "store").queues) == queues_snapshot(
        with_checkpoint.queues
    )


def test_what_was_noted_on_the_golden_slips_is_done(tmp_path: Path):
    shutil.copytree(GOLDEN, tmp_path / "store")
    with kmq.open(tmp_path / "store", create=False, maintenance=False) as store:
        # The locks ended years ago. Noted are 4 and 6 of one slip, and 8 of the other.
        received = store.queue("q").receive(100)
        assert sorted(each.offset for each in received) == [0, 3, 5, 7, 9, 10, 11, 12, 13, 14]
        assert store.queues()[0].stats.acked == 5


def test_the_maker_makes_the_same_log(tmp_path: Path):
    make(tmp_path / "store")
    made, golden = _state(tmp_path / "store"), _state(GOLDEN)
    assert queues_snapshot(made.queues) == queues_snapshot(golden.queues)
