"""The golden store of gaps tells for ever which messages were lost with them, where it is known."""

from __future__ import annotations

from pathlib import Path

import kmq_spark as kmq
from tests.data.make_golden_lost import LOST, make
from tests.support.golden import DATA, in_each_kind

folder = in_each_kind(DATA / "format-1-lost", make)


def test_the_golden_gaps_tell_what_was_lost(folder: Path) -> None:
    with kmq.open(folder) as store:
        gaps = store.log.refresh().topic("inbox").index(0).gaps
        assert {gap.start: gap.lost for gap in gaps} == LOST
        assert {(gap.end - gap.start, gap.reason) for gap in gaps} == {(2, "damaged")}
        assert store.verify(deep=True).ok
