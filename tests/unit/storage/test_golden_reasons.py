"""The golden answers tell for ever why, and their records are as without it."""

from __future__ import annotations

from pathlib import Path

import kmq_spark as kmq
from tests.data.make_golden_reasons import REASONS, make
from tests.support.golden import DATA, in_each_kind

folder = in_each_kind(DATA / "format-1-reasons", make)


def test_the_golden_answers_tell_why_their_records_are_to_be_tried_again(folder: Path) -> None:
    with kmq.open(folder) as store:
        stats = store.queue("mails").stats()
        assert (stats.acked, stats.locked, stats.ready) == (1, 0, 2)
        for offset, reason in enumerate(REASONS):
            (told,) = (
                step.facts.get("reason", "")
                for step in store.trace("queue:mails", 0, offset)
                if step.event in ("retried", "acked")
            )
            assert told == reason
        assert store.verify(deep=True).ok
