"""The demo's report for people: each check with its numbers, and next steps only after a success.

Finds: a failed check that reads like a good one, and a failed run that ends in cheers.
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from kmq_spark.demo.archive import Archive
from kmq_spark.demo.folder import Folder
from kmq_spark.demo.report import Check, Report, between, equal, print_text

CARRIERS = [{"carrier": "Envoy Air", "flights": 2, "cancelled": 1, "mean delay, min": 7.5}]


def _shown(*checks: Check) -> str:
    archive = Archive("parquet", "demo/archive", 2, 2)
    report = Report("Python", 3.2, Folder(Path("demo")), archive, None, 0, CARRIERS, [*checks])
    target = StringIO()
    print_text(report, target)
    return target.getvalue()


def test_a_run_whose_checks_hold_ends_with_the_next_steps():
    shown = _shown(equal("flights in the topic", 2_000, 2_000), between("at the kill", 5, 1, 9))
    assert "ok    flights in the topic: 2,000 (wanted: 2,000)" in shown
    assert "ok    at the kill: 5 (wanted: 1 to 9)" in shown
    for line in ("Envoy Air", "Lag of group delays: 0", "Done in 3 s, with Python.", "Try next"):
        assert line in shown
    assert "FAIL" not in shown


def test_a_run_with_a_failed_check_shows_it_and_cheers_nobody():
    shown = _shown(equal("flights in the topic", 2, 2), equal("flights in the archive", 3, 2))
    assert "FAIL  flights in the archive: 3 (wanted: 2)" in shown
    assert "Try next" not in shown
