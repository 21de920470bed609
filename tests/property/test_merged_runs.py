"""Runs of an answer, merged.

Finds: a record that is named twice, or by nobody, when runs overlap or come in any order.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kmq_storage.format.queue_entries import Run
from kmq_storage.queues.handing import merged

_RUNS = st.lists(
    st.builds(
        Run,
        topic_id=st.sampled_from([b"a" * 16, b"b" * 16]),
        partition=st.integers(0, 1),
        first=st.integers(0, 20),
        rows=st.integers(1, 6),
        delivery=st.just(7),
    )
)


def _records(runs: list[Run]) -> Counter[tuple[bytes, int, int]]:
    return Counter(
        (run.topic_id, run.partition, run.first + row) for run in runs for row in range(run.rows)
    )


@given(_RUNS)
def test_merged_runs_name_each_record_once_in_as_few_runs_as_there_are_gaps(runs: list[Run]):
    found = merged(runs)
    assert _records(found) == dict.fromkeys(_records(runs), 1)
    for one, two in pairwise(found):
        assert one[:2] != two[:2] or one.first + one.rows < two.first


def test_runs_of_different_deliveries_stay_apart():
    runs = [Run(b"a" * 16, 0, 0, 4, 1), Run(b"a" * 16, 0, 4, 2, 2)]
    assert merged(runs[::-1]) == runs
