"""Tasks over segments: what is large is divided, each finds its records by itself, and again."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.datasource.executor.reading import read_partition
from kmq_spark.datasource.options.source_options import SourceOptions
from kmq_spark.datasource.options.subscription import Subscription
from kmq_spark.datasource.options.task_limits import TaskLimits
from kmq_spark.datasource.planning import ranges
from kmq_spark.datasource.planning.pieces import Pieces
from kmq_spark.datasource.planning.ranges import OffsetRange
from kmq_spark.datasource.planning.tasks import Task, plan_tasks
from kmq_spark.datasource.planning.topic_ranges import TopicRanges
from kmq_spark.datasource.planning.view import View
from kmq_spark.errors import OffsetOutOfRangeError
from kmq_storage.log.index import spread
from kmq_storage.maintenance.seal import plan_seal, seal
from tests.support.engine import Sent, send_rows
from tests.unit.datasource.engine import plain_columns

ROWS = 3_000
VIEW = View(plain_columns())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kmq.Store]:
    """A partition of one large segment, and one of small parts of every kind."""
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        store.create_topic("t", partitions=2, cleanup="compact")
        log = store.log
        for first in range(0, ROWS, 500):
            send_rows(log, "t", [Sent(b"%d" % n, b"v" * 100) for n in range(first, first + 500)])
        store.seal()
        for first in range(0, 60, 10):
            rows = [Sent(b"%d" % (n % 25), b"%d" % n) for n in range(first, first + 10)]
            send_rows(log, "t", rows, partition=1, staged=first == 50)
            if first < 40:
                seal(log, plan_seal(log.refresh()))
            if first == 30:
                store.compact("t")
                store.checkpoint()
        yield store


def _ranges(store: kmq.Store, *spans: tuple[int, int, int]) -> list[TopicRanges]:
    topic = store.log.refresh().topic("t")
    return [TopicRanges.of(topic, [OffsetRange("t", *span) for span in spans])]


def _read(store: kmq.Store, tasks: list[Task]) -> list[tuple[int, int]]:
    options = SourceOptions(url=store.url, subscription=Subscription(topics=("t",)))
    places: list[tuple[int, int]] = []
    for task in tasks:
        task = pickle.loads(pickle.dumps(task))
        for batch in read_partition(options, task, VIEW):
            columns = (batch.column("partition").to_pylist(), batch.column("offset").to_pylist())
            places += zip(*columns, strict=True)
    return places


def _expected(store: kmq.Store, number: int, low: int, high: int) -> list[tuple[int, int]]:
    table = store.read("t", partitions=[number], start={number: low}, end={number: high})
    return [(number, at) for at in table.read_all()["offset"].to_pylist()]


def test_planning_imports_no_pandas(store: kmq.Store):
    """Importing it takes longer than planning a read of a million segments."""
    code = (
        "import sys; from kmq_spark.datasource.source import KmqDataSource; "
        f"source = KmqDataSource({{'path': {store.url!r}, 'subscribe': 't'}}); "
        "assert source.reader(source.schema()).partitions(); "
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_large_segment_is_divided_among_tasks_of_like_size(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ranges, "TASK_BYTES_MIN", 20_000)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    tasks = plan_tasks(_ranges(store, (0, 0, ROWS)), TaskLimits(), store.log.files)
    assert len(tasks) == 4
    sizes = [sum(part.end - part.start for run in task.runs for part in run) for task in tasks]
    assert sum(sizes) == ROWS
    assert max(sizes) < 1.3 * min(sizes)
    assert _read(store, tasks) == _expected(store, 0, 0, ROWS)


@pytest.mark.parametrize("grain", [None, 1 << 30])
def test_what_is_known_of_ranges_is_the_same_after_they_were_planned(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, grain: int | None
):
    monkeypatch.setattr(spread, "_ROWS_EXACT", 1)
    (asked,), (other,) = (_ranges(store, (0, 100, 200), (1, 3, 57)) for _ in range(2))
    expected = asked.spread()
    for each in (asked, other):
        Pieces.of(each.spread(grain=grain), each.starts, each.ends)
        for column in ("owners", "bases", "ends", "weights", "bytes"):
            assert getattr(each.spread(), column).tolist() == getattr(expected, column).tolist()


LIMITS = [
    TaskLimits(),
    *(TaskLimits(min_partitions=minimum) for minimum in (1, 3, 7)),
    TaskLimits(max_records=7),
    TaskLimits(max_bytes=2_000),
    TaskLimits(min_partitions=3, max_records=25, max_bytes=2_000),
]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("span", [(0, 60), (3, 57), (12, 13), (24, 26), (40, 60), (59, 60)])
def test_any_range_and_any_number_of_tasks_read_exactly_the_records_between(
    store: kmq.Store, span: tuple[int, int], limits: TaskLimits
):
    tasks = plan_tasks(_ranges(store, (1, *span)), limits, store.log.files)
    assert _read(store, tasks) == _expected(store, 1, *span)


def test_tasks_that_were_planned_before_read_on_after_everything_moved(store: kmq.Store):
    tasks = plan_tasks(
        _ranges(store, (0, 100, ROWS), (1, 40, 60)), TaskLimits(min_partitions=5), store.log.files
    )
    expected = [*_expected(store, 0, 100, ROWS), *_expected(store, 1, 40, 60)]
    store.seal()
    send_rows(store.log, "t", [Sent(b"other", b"x")], partition=0)
    store.seal()
    store.compact("t")
    store.checkpoint()
    store.collect(grace=0)
    # Compaction meanwhile may have dropped superseded records, as it may at any time.
    assert set(_read(store, tasks)) <= set(expected)
    assert len(_read(store, tasks)) >= 2_900 + 20 - 5


def test_a_range_that_was_trimmed_is_refused_when_it_is_planned(store: kmq.Store):
    store.trim("t", {0: 10})
    with pytest.raises(OffsetOutOfRangeError):
        plan_tasks(_ranges(store, (0, 0, ROWS)), TaskLimits(), store.log.files)


def test_a_task_carries_only_what_finds_its_own_records(store: kmq.Store):
    for n in range(300):
        send_rows(store.log, "t", [Sent(None, b"%d" % n)], partition=1)
    (task,) = plan_tasks(_ranges(store, (1, 60, 62)), TaskLimits(min_partitions=1), store.log.files)
    assert len(pickle.dumps(task)) < 3_000
    assert _read(store, [task]) == [(1, 60), (1, 61)]
