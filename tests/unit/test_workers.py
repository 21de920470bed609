"""Finds a test that starts a second session of Spark, which takes seconds and a gigabyte."""

from __future__ import annotations

from tests.support.sources import ROOT
from tests.support.workers import SPARK, scope_of

#: Spelled in two parts, so that this file does not find itself.
_FIXTURE = "spark: " + "SparkSession"


def test_all_that_use_the_session_of_spark_share_one_process():
    users = [path for path in (ROOT / "tests").rglob("test_*.py") if _FIXTURE in path.read_text()]
    scopes = {scope_of(f"{path.relative_to(ROOT).as_posix()}::test") for path in users}
    assert scopes == {SPARK}
