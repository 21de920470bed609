"""What a person sees: one line that changes, on a terminal, and a few lines in a log."""

from __future__ import annotations

import io
from dataclasses import replace

from kmq_spark.demo.progress import Progress
from kmq_storage.environment import SYSTEM


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_one_line_that_is_overwritten():
    target = _Terminal()
    progress = Progress(target, total=100)
    progress.show(10, 5, "not killed yet")
    progress.show(20, 15, "not killed yet")
    assert target.getvalue().count("\n") == 0
    assert "produced 20/100 | processed 15 | lag 5" in target.getvalue().split("\r")[-1]


def test_no_number_of_the_demo_is_cut_off_in_a_terminal_of_80_columns():
    target = _Terminal()
    Progress(target, total=336_776).show(336_776, 200_000, "killed at 154,000")
    assert target.getvalue().endswith("| lag 136,776 | killed at 154,000")


def test_a_log_gets_a_line_every_two_seconds_only():
    target, seconds = io.StringIO(), iter(range(100))
    environment = replace(SYSTEM, monotonic=lambda: float(next(seconds)) / 4)
    progress = Progress(target, total=100, environment=environment)
    for produced in range(20):
        progress.show(produced, 0, "not killed yet")
    assert target.getvalue().count("\n") == 3
