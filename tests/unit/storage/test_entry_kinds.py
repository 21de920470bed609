"""Kinds of entries: each has a number of its own, and stands in the format's description."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from kmq_storage.format.entries import Entry, RecordsEntry
from kmq_storage.log.state.store_state import _RULES, StoreState
from tests.support.golden import golden_frames

FORMAT = Path(__file__).parents[3] / "storage" / "FORMAT.md"
GOLDEN = [log.parent for log in (Path(__file__).parents[2] / "data").glob("format-*/log")]

#: Records have two forms: 1, and 10 for a staged batch.
NUMBERS = [1, 10, *(each.kind for each in get_args(Entry) if each is not RecordsEntry)]


def test_no_two_kinds_of_entries_have_one_number() -> None:
    assert len(set(NUMBERS)) == len(NUMBERS)


def test_the_format_describes_each_kind_of_entry_and_no_other() -> None:
    described = re.findall(r"^\*\*(\d+), ", FORMAT.read_text(), re.MULTILINE)
    assert sorted(map(int, described)) == sorted(NUMBERS)


def test_a_golden_store_has_each_kind_of_entry() -> None:
    frames = (frame for golden in GOLDEN for frame in golden_frames(golden))
    assert {type(entry) for frame in frames for entry in frame.entries} == set(get_args(Entry))


def test_a_state_can_apply_each_kind_of_entry() -> None:
    applied = {RecordsEntry, *_RULES, *StoreState()._queue_rules}
    assert applied == set(get_args(Entry))
