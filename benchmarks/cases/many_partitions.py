"""A topic of very many partitions, seen by Spark: planning all of it, and one trigger of a stream.

The segments are rows of the manifest only; nothing here opens one. Times are of this process's
processor: planning waits for nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import kmq_spark as kmq
from benchmarks import stores
from benchmarks.cases.manifest import stored_segments
from benchmarks.job import Job, Measure, Sample
from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options.source_options import parse_source_options
from kmq_spark.datasource.planning.tasks import PlacedRanges, Task
from kmq_spark.datasource.planning.view import columns_of_read, plain_view
from kmq_spark.datasource.stream_reader import KmqStreamReader

_PARTITIONS = 10_000
_TRIGGERS = 7


def planning(job: Job) -> Measure:
    """As many segments as `records` says, a million by default, in ten thousand partitions."""
    path = str(stored_segments(job, job.sizes.records, _PARTITIONS))
    options = parse_source_options({"path": path, "subscribe": stores.TOPIC})
    view = plain_view(columns_of_read([], options), options)
    batch = KmqBatchReader(options, view)

    def measure() -> Sample:
        with kmq.open(path, maintenance=False) as store, store.producer() as producer:
            sample = {"plan_ms": min(_plan_ms(batch) for _ in range(3))}
            stream = KmqStreamReader(options, view)
            triggers = list(_triggers(stream, producer, path))
        offset_bytes = max(size for _, size in triggers)
        trigger_ms = min(spent for spent, _ in triggers)
        return {**sample, "offset_mb": offset_bytes / 1e6, "trigger_ms": trigger_ms}

    return measure


def _triggers(
    stream: KmqStreamReader, producer: kmq.Producer, path: str
) -> Iterator[tuple[float, int]]:
    """Milliseconds of planning of each trigger, and the bytes of its offset."""
    limit = stream.getDefaultReadLimit()
    start = _as_spark(stream.latestOffset(stream.initialOffset(), limit))
    for _ in range(_TRIGGERS):
        producer.send_arrow(stores.TOPIC, _one_for_each())
        producer.flush()
        open_log(path, read_only=True).refresh()
        begin = time.process_time()
        end = stream.latestOffset(start, limit)
        tasks = stream.partitions(start, end)
        spent = time.process_time() - begin
        assert sum(len(run.offsets) for run in _runs(tasks)) == _PARTITIONS
        start = _as_spark(end)
        yield spent * 1e3, len(json.dumps(end))


def _runs(tasks: Sequence[InputPartition]) -> list[PlacedRanges]:
    return [run for task in tasks if isinstance(task, Task) for run in task.runs]


def _one_for_each() -> pa.RecordBatch:
    numbers = pa.array(range(_PARTITIONS), pa.int32())
    return pa.record_batch({"value": [bytes(100)] * _PARTITIONS, "partition": numbers})


def _as_spark(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset on its way through Spark, which keeps it as text."""
    parsed: dict[str, Any] = json.loads(json.dumps(offset))
    return parsed


def _plan_ms(batch: KmqBatchReader) -> float:
    begin = time.process_time()
    assert batch.partitions()
    return (time.process_time() - begin) * 1e3
