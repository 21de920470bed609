"""What the demo says of Spark's errors: a line, and a way out where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from kmq_spark.demo import delays
from kmq_spark.demo.folder import Folder
from kmq_spark.demo.with_spark import SparkSteps, in_one_line
from kmq_storage.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_error_is_told_without_the_page_about_the_query():
    told = in_one_line("[STREAM_FAILED] it failed\nbecause of this\nat java.lang\n")
    assert told == "[STREAM_FAILED] it failed because of this"
    assert in_one_line("it failed\n=== Streaming Query ===\nIdentifier: x") == "it failed"


def test_who_has_a_busy_machine_is_told_so():
    told = in_one_line("Python worker failed to connect back.\n=== Streaming Query ===\n...")
    assert told.startswith("Python worker failed to connect back. Spark waits 10 s")


class _Query:
    """A query that stopped, or goes on."""

    def __init__(self, reason: str | None) -> None:
        self._reason, self.isActive = reason, reason is None

    def exception(self) -> str | None:
        """Why it stopped."""
        return self._reason


def _steps(monkeypatch: pytest.MonkeyPatch, reasons: list[str | None], path: Path) -> SparkSteps:
    """Steps whose queries stop for these reasons, one after the other."""
    queries = iter(map(_Query, reasons))
    monkeypatch.setattr(delays, "start_query", lambda *_, **__: next(queries))
    steps = SparkSteps(Folder(path))
    steps._spark = cast("SparkSession", object())
    steps._start_query()
    return steps


def test_a_query_goes_on_from_its_checkpoint_where_a_process_was_too_slow_for_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    steps = _steps(monkeypatch, ["Python worker failed to connect back.", None], tmp_path)
    steps.work(0.0)
    steps.work(0.0)
    assert steps._query is not None
    assert steps._query.isActive


@pytest.mark.parametrize("reasons", [["no"], ["Python worker failed to connect back."] * 9])
def test_a_query_that_stops_for_another_reason_or_again_and_again_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reasons: list[str | None]
):
    steps = _steps(monkeypatch, reasons, tmp_path)
    with pytest.raises(UnavailableError, match="The query stopped"):
        for _ in range(9):
            steps.work(0.0)
