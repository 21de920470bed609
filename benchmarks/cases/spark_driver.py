"""What kmq itself does on Spark's driver for a small micro-batch: the calls that Spark makes."""

from __future__ import annotations

import json
import statistics
import time

import kmq_spark as kmq
from benchmarks import stores
from benchmarks.job import Job, Measure, Sample
from kmq_spark.datasource.executor.writing import write_task
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options.sink_options import SinkOptions
from kmq_spark.datasource.options.source_options import parse_source_options
from kmq_spark.datasource.planning.view import columns_of_read, plain_view
from kmq_spark.datasource.sink.commit import commit_written
from kmq_spark.datasource.sink.sink import open_sink
from kmq_spark.datasource.stream_reader import KmqStreamReader
from kmq_storage.format.entries import BatchIdEntry

_BATCHES, _RECORDS = 50, 40


def own_share(job: Job) -> Measure:
    """From a topic with a group into another store: planning, offsets, the group's, and commit."""

    def measure() -> Sample:
        with stores.fresh(job, "fsync") as (store, path), stores.fresh(job, "fsync") as (_, sink):
            given = {"path": path, "subscribe": stores.TOPIC, "group": "trickle"}
            options = parse_source_options(given)
            stream = KmqStreamReader(options, plain_view(columns_of_read([], options), options))
            took = _batches(stream, store, sink)
            stream.stop()
        return {"driver_ms": statistics.median(took[len(took) // 4 :])}

    return measure


def _batches(stream: KmqStreamReader, store: kmq.Store, sink: str) -> list[float]:
    limit, took = stream.getDefaultReadLimit(), []
    start = stream.latestOffset(stream.initialOffset(), limit)
    target, into = SinkOptions(url=sink, topic=stores.TOPIC), open_log(sink, read_only=False)
    with store.producer() as producer:
        for number in range(_BATCHES):
            for _ in range(_RECORDS):
                producer.send(stores.TOPIC, bytes(100))
            producer.flush()
            begin = time.perf_counter()
            end = json.loads(json.dumps(stream.latestOffset(start, limit)))
            stream.reportLatestOffset()
            tasks = stream.partitions(start, end)
            opened = open_sink(target)
            planned = time.perf_counter()
            rows = [batch for task in tasks for batch in stream.read(task)]
            written = write_task(opened, (each.select(["value"]) for each in rows), task=0)
            committing = time.perf_counter()
            commit_written(into, [written], BatchIdEntry("query", number))
            took.append((planned - begin + time.perf_counter() - committing) * 1e3)
            start = end
    return took
