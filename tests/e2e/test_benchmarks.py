"""Each case of the benchmarks runs in small, and measures what its figures are made of.

Finds: a case that no longer runs, because what it calls has changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import worker
from benchmarks.cases import engine
from benchmarks.figures import GROUPS
from benchmarks.job import Job, Sizes
from tests.support.s3 import build_versitygw, missing_versitygw

pytestmark = pytest.mark.e2e

SMALL = Sizes(records=20_000, spark_rows=20_000, rounds=1, seconds=0.3, gib=0.01)
#: Cases of Spark's groups that need no session.
_WITHOUT_SESSION = {"spark_sink:driver_commit"}
CASES = {
    case: group
    for group in GROUPS.values()
    for case in group.kept(jars=False)
    if (not group.spark or case in _WITHOUT_SESSION) and "redis" not in case
}


def _metrics(case: str) -> set[str]:
    """What the figures of its group name of a case: as `module:function.metric`, or without it."""
    named = (str(name) for figure in CASES[case].figures for name in (figure.ours, figure.peer))
    words = (name.rpartition(".") for name in named)
    return {metric for of, _, metric in words if of in (case, case.partition(":")[2])}


@pytest.mark.parametrize("case", CASES)
def test_a_case_of_the_benchmarks_measures_what_its_figures_name(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if case.startswith(("bucket:", "requests:")) and (why := missing_versitygw(build_versitygw())):
        pytest.skip(why)
    monkeypatch.setattr(engine, "_LONG", SMALL.seconds)
    sample = worker.prepare(Job(case=case, folder=str(tmp_path), sizes=SMALL))()
    assert _metrics(case)
    assert _metrics(case) <= set(sample)
