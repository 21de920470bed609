"""The golden store of slips stays readable, and what was noted in it counts."""

from __future__ import annotations

import shutil
from pathlib import Path

import kmq_spark as kmq
from kmq_storage.format.queue_entries import Run
from kmq_storage.log.state.queues.slip import Slip
from kmq_storage.log.state.queues.snapshot import queues_snapshot
from tests.data.make_golden_slips import FIRST, QUEUE, SECOND, make
from tests.support.golden import DATA, copied, state_of

GOLDEN = DATA / "format-1-slips"
folder = copied(GOLDEN)


def test_the_golden_slips_go_on_as_the_log_says(folder: Path):
    with_checkpoint = state_of(folder)
    queue = with_checkpoint.queue("q")
    until = queue.slips[FIRST].until
    assert queue.slips[FIRST] == Slip(2, until, (Run(QUEUE, 0, 4, 3, 1),))
    assert queue.slips[SECOND].taken
    assert queue.slips[SECOND].runs == (Run(QUEUE, 0, 7, 2, 1),)
    assert (queue.acked, queue.delivered) == (2, 9)
    shutil.rmtree(folder / "checkpoints")
    assert queues_snapshot(state_of(folder).queues) == queues_snapshot(with_checkpoint.queues)


def test_what_was_noted_on_the_golden_slips_is_done(folder: Path):
    with kmq.open(folder, create=False, maintenance=False) as store:
        # The locks ended years ago. Noted are 4 and 6 of one slip, and 8 of the other.
        received = store.queue("q").receive(100)
        assert sorted(each.offset for each in received) == [0, 3, 5, 7, 9, 10, 11, 12, 13, 14]
        assert store.queues()[0].stats.acked == 5


def test_the_maker_makes_the_same_log(tmp_path: Path):
    make(tmp_path / "store")
    made, golden = state_of(tmp_path / "store"), state_of(GOLDEN)
    assert queues_snapshot(made.queues) == queues_snapshot(golden.queues)
