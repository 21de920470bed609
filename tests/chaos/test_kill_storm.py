"""A short kill storm, as every run of the tests has one; `kill_storm.py` runs the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.kill_storm import run_round


@pytest.mark.chaos
def test_forty_kills_lose_nothing_double_nothing_and_damage_nothing(tmp_path: Path):
    counts = run_round(tmp_path / "store", 40, seed=40)
    assert counts["wrong"] == []
    assert counts["kills"] >= 40
    assert counts["found"] >= counts["acknowledged"] > 100
