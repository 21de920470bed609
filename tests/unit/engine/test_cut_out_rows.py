"""Gaps in the rows of one partition. Finds rows that a gap doubles, or hides with those it has."""

from __future__ import annotations

import pytest

from kmq_storage.format.manifest import SEGMENT, Row
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.index.offset_index import Gap, Hole, OffsetIndex
from kmq_storage.model import LogDamage
from kmq_storage.objects.memory import MemoryDisk


def _index(*spans: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex((bytes(16), 0), Manifest(MemoryDisk("memory://rows"), ()))
    for base, end in spans:
        file = base.to_bytes(16, "big")
        index.append(Row(base, end, end - base, SEGMENT, file, 0, 0, 0, 0, 0, 0, 0, 0))
    return index


def _spans(index: OffsetIndex) -> list[tuple[int, int]]:
    return [(row.base_offset, row.end_offset) for row in index.rows(0, 100)]


@pytest.mark.parametrize("gap", [(14, 15), (10, 15), (14, 20)])
def test_a_gap_inside_of_a_row_leaves_each_row_there_once(gap: tuple[int, int]):
    index = _index((0, 10), (10, 21), (21, 30))
    index.cut_out(Gap(*gap, "lost"))
    assert _spans(index) == [(0, 10), (10, 21), (21, 30)]


def test_a_gap_takes_the_rows_that_it_covers_and_no_others():
    index = _index((0, 10), (10, 15), (15, 20), (20, 30))
    index.cut_out(Gap(10, 20, "lost"))
    assert _spans(index) == [(0, 10), (20, 30)]


@pytest.mark.parametrize("damaged", [False, True])
def test_no_run_of_rows_goes_on_behind_a_gap(damaged: bool):
    index = _index((0, 10), (10, 15), (16, 20), (20, 30))
    if damaged:
        index.holes.append(Hole(15, 16, LogDamage("log/1", "flipped", 7, 7)))
    else:
        index.cut_out(Gap(15, 16, "lost"))
    runs = [[row.base_offset for row in run] for run in index.runs(0, 100, lambda _: True)]
    assert runs == [[0, 10], [16, 20]]
