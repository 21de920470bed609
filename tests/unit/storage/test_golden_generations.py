"""The golden store knows for ever which generations a deleted group had."""

from __future__ import annotations

from pathlib import Path

import kmq_spark as kmq
from tests.data.make_golden_generations import LAST, make
from tests.support.golden import DATA, in_each_kind

folder = in_each_kind(DATA / "format-1-generations", make)


def test_a_group_of_the_name_of_the_deleted_one_begins_above_its_generations(folder: Path) -> None:
    with kmq.open(folder) as store:
        assert store.groups() == []
        with store.consumer("g", topics=["orders"]) as consumer:
            assert consumer.assignment() == {"orders": [0]}
            assert store.describe_group("g").generation > LAST
        assert store.verify(deep=True).ok
