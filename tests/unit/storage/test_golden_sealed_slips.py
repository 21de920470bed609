"""The golden store of slips that prove themselves stays readable; what they prove counts."""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.format.queue_entries import Run
from kmq_storage.log.state.queues.slip import Slip
from kmq_storage.log.state.queues.snapshot import queues_snapshot
from tests.data.make_golden_sealed_slips import BOOT, FIRST, QUEUE, SECOND, make
from tests.support.golden import DATA, KINDS, placed, state_of

GOLDEN = DATA / "format-1-sealed-slips"


@pytest.mark.parametrize("kind", KINDS)
def test_the_rounds_go_on_as_the_log_says(tmp_path: Path, kind: str):
    queue = state_of(placed(kind, GOLDEN, make, tmp_path / "store")).queue("q")
    until = queue.slips[FIRST].until
    assert queue.slips[FIRST] == Slip(2, until, (Run(QUEUE, 0, 4, 4, 1),), boot=BOOT)
    assert queue.slips[SECOND].taken
    assert queue.slips[SECOND].runs == (Run(QUEUE, 0, 8, 2, 1),)
    assert (queue.acked, queue.delivered) == (2, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_noted_is_done(tmp_path: Path, kind: str):
    folder = placed(kind, GOLDEN, make, tmp_path / "store")
    with kmq.open(folder, create=False, maintenance=False) as store:
        assert store.verify(deep=True).damage == []
        # The locks ended years ago. Noted are 4 and 6 of one slip, and 9 of the other.
        received = store.queue("q").receive(100)
        assert sorted(each.offset for each in received) == [0, 3, 5, 7, 8, 10, 11, 12, 13, 14]
        assert store.queues()[0].stats.acked == 5


def test_the_maker_makes_the_same_slips_and_log(tmp_path: Path):
    make(tmp_path / "store")
    for slip in (FIRST, SECOND):
        file = f"slips/{slip.hex()}"
        assert (tmp_path / "store" / file).read_bytes() == (GOLDEN / file).read_bytes()
    made, golden = state_of(tmp_path / "store"), state_of(GOLDEN)
    assert queues_snapshot(made.queues) == queues_snapshot(golden.queues)
