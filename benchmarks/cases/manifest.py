"""A store with very many segments: opening it, finding an offset or a time, planning a read.

The segments are rows of the manifest only; nothing here opens one.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import kmq_spark as kmq
from benchmarks import stores
from benchmarks.job import PARTITIONS, Job, Measure, Sample
from kmq_spark.datasource.columns.tables import table_spark_schema
from kmq_spark.datasource.options.task_limits import TaskLimits
from kmq_spark.datasource.planning.tasks import plan_tasks
from kmq_spark.datasource.planning.topic_ranges import TopicRanges
from kmq_spark.datasource.table_reader import KmqTableReader
from kmq_storage.format.manifest import SEGMENT, Row
from kmq_storage.log.checkpoints.checkpoint import write_checkpoint

_ROWS, _ROW_BYTES, _SECOND = 1_000, 110, 1_000_000
_LOOKUPS = 300


def segments(job: Job) -> Measure:
    """As many segments as `records` says, a million by default."""
    path = stored_segments(job, job.sizes.records, PARTITIONS)

    def measure() -> Sample:
        code = f"from benchmarks.cases.manifest import measured; print(measured({str(path)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        figures: Sample = dict(zip(_FIGURES, map(float, done.stdout.split()), strict=True))
        return figures

    return measure


_FIGURES = ("open_ms", "offset_ms", "time_ms", "plan_ms", "memory_mb", "tasks_ms", "table_ms")


def stored_segments(job: Job, count: int, partitions: int) -> Path:
    """A store with so many segments in a topic, as far as its manifest knows."""
    path = stores.new_path(job)
    with kmq.open(path, maintenance=False) as store:
        store.create_topic(stores.TOPIC, partitions=partitions)
        began = store.log.files.now()
        state, cursor = store.log.snapshot()
        topic = state.topic(stores.TOPIC)
        for number, part in enumerate(topic.parts):
            for place in range(count // partitions):
                topic.index(number).append(_row(place))
            part.rows = part.end = count // partitions * _ROWS
            part.size = part.rows * _ROW_BYTES
        write_checkpoint(store.log.files, state, cursor, uuid.uuid4, began=began)
    return path


def _row(place: int) -> Row:
    base, time_us = place * _ROWS, place * _SECOND
    file, facts = uuid.uuid4().bytes, (120_000, 1_000, 5, 15)
    last = time_us + _SECOND
    return Row(
        base, base + _ROWS, _ROWS, SEGMENT, file, *facts, time_us, last, last, _ROWS * _ROW_BYTES
    )


def measured(path: str) -> str:
    """Every figure of a store, in a process that did nothing before."""
    open_store = kmq.open  # loads the client's code, which is no part of opening
    begin = time.perf_counter()
    store = open_store(path, maintenance=False, read_only=True)
    topic = store.log.refresh().topic(stores.TOPIC)
    opened = (time.perf_counter() - begin) * 1e3
    rng = random.Random(7)

    def find_offset() -> None:
        number = rng.randrange(topic.partitions)
        offset = rng.randrange(topic.parts[number].end)
        (place,) = topic.places(number, offset, offset + 1)
        assert place.base_offset <= offset < place.end_offset

    def find_time() -> None:
        number = rng.randrange(topic.partitions)
        end = topic.parts[number].end
        when = rng.randrange(end // _ROWS * _SECOND)
        row = topic.index(number).first_since(when, 0, end)
        assert row is not None
        assert row.min_timestamp <= when <= row.max_timestamp

    def plan() -> None:
        ends = {number: part.end for number, part in enumerate(topic.parts)}
        ranges = [TopicRanges.between(topic, ends, {}, ends)]
        assert plan_tasks(ranges, TaskLimits(), store.log.files)

    figures = [opened, _median(find_offset, _LOOKUPS), _median(find_time, _LOOKUPS)]
    figures += [_median(plan, 3), _resident_mb()]
    figures += _table(path)
    store.close()
    return " ".join(map(str, figures))


def _table(path: str) -> list[float]:
    """Milliseconds to plan the table of all segments, and to read it, one task after another."""
    reader = KmqTableReader(path, "segments", table_spark_schema("segments"))
    reader.partitions()  # the first one opens the store
    begin = time.perf_counter()
    tasks = reader.partitions()
    planned = time.perf_counter()
    assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) > _LOOKUPS
    return [(planned - begin) * 1e3, (time.perf_counter() - planned) * 1e3]


def _median(action: Callable[[], None], times: int) -> float:
    spent = []
    for _ in range(times):
        begin = time.perf_counter()
        action()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent) * 1e3


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20
