"""Spark streaming reads: a backlog in four batches, and a trickle of 200 records a second.

A trickling record is late by the time from its send in another process to the Python function of
foreachBatch that collects it.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks import spark_session
from benchmarks.cases import senders
from benchmarks.clock import middle, spread, stopwatch
from benchmarks.job import Job, Measure, Sample
from benchmarks.limit_source import LimitSource, write_batches

# A query's first batches compile code and start workers.
WARM_UP_SECONDS = 5.0


def _available_now(job: Job, stream: DataFrame) -> Sample:
    return middle(lambda: _backlog(job, stream))


def _backlog(job: Job, stream: DataFrame) -> Sample:
    """Read the backlog in four batches into the noop sink, from start() until it has ended."""
    writer = stream.writeStream.format("noop").trigger(availableNow=True)
    with stopwatch() as watch:
        query = writer.option("checkpointLocation", _checkpoint(job)).start()
        query.awaitTermination()
    read = [progress["numInputRows"] for progress in query.recentProgress]
    batches = sum(rows > 0 for rows in read)
    # A quarter shared out over partitions of unequal backlog is rounded: a small fifth is fair.
    if sum(read) != job.sizes.spark_rows or batches not in (4, 5):
        raise RuntimeError(f"{sum(read)} of {job.sizes.spark_rows} rows in {batches} batches")
    return {"available_now_rate": sum(read) / watch.seconds, "batches": batches}


def _trickle(job: Job, stream: DataFrame, sender: AbstractContextManager[None]) -> Sample:
    """Follow a sender for a while: how long batches take, and how late records are."""
    delays: list[float] = []
    begun = time.perf_counter()

    def look(batch: DataFrame, _: int) -> None:
        values = [row.value for row in batch.select("value").collect()]
        if time.perf_counter() - begun > WARM_UP_SECONDS:
            delays.extend(senders.delay_ms(bytes(value)) for value in values)

    writer = stream.writeStream.foreachBatch(look)
    query = writer.option("checkpointLocation", _checkpoint(job)).start()
    with sender:
        time.sleep(WARM_UP_SECONDS + job.sizes.seconds)
    _raise_if_failed(query)
    query.stop()
    if not delays:
        raise RuntimeError("no batch came after the first seconds: the machine is too busy")
    late = spread(delays)
    return {"p50_ms": late["p50_ms"], "p99_ms": late["p99_ms"], "batch_ms": _median_batch(query)}


def _median_batch(query: StreamingQuery) -> float:
    took = [
        progress["durationMs"]["triggerExecution"]
        for progress in query.recentProgress
        if progress["numInputRows"] > 0
    ]
    return float(statistics.median(took[len(took) // 4 :]))


def _raise_if_failed(query: StreamingQuery) -> None:
    failure = query.exception()
    if failure is not None:
        raise failure


def _checkpoint(job: Job) -> str:
    return str(job.path("checkpoints", uuid.uuid4().hex))


def _seconds(job: Job) -> int:
    return int(senders.PER_SECOND * (WARM_UP_SECONDS + job.sizes.seconds + 60))


def _load(session: SparkSession, name: str, options: Mapping[str, str]) -> DataFrame:
    return session.readStream.format(name).options(**options).load()


def kmq(job: Job) -> Measure:
    """kmq: the backlog written by send_arrow(), the trickle by send(), durable as by default.

    A sender with durability "os" would leave the sync to the query, which sees what is on disk.
    """
    from benchmarks import stores

    backlog = str(stores.filled_by_arrow(job, job.sizes.spark_rows))
    session = spark_session.start(job)
    quarter = {"maxOffsetsPerTrigger": str(job.sizes.spark_rows // 4)}
    where = {"subscribe": stores.TOPIC, "startingOffsets": "earliest"}

    def measure() -> Sample:
        stream = _load(session, "kmq", where | quarter | {"path": backlog})
        sample = _available_now(job, stream)
        with stores.fresh(job, "fsync") as (_, path):
            told = (path, stores.TOPIC, "fsync", _seconds(job))
            sender = senders.sending(senders.send_to_kmq, *told)
            return sample | _trickle(job, _load(session, "kmq", where | {"path": path}), sender)

    return measure


def kafka(job: Job) -> Measure:
    """The Kafka connector."""
    from benchmarks.peers import topics

    backlog = topics.fill(job.broker, job.sizes.spark_rows)
    session = spark_session.start(job)
    where = {"kafka.bootstrap.servers": job.broker, "startingOffsets": "earliest"}
    quarter = {"maxOffsetsPerTrigger": str(job.sizes.spark_rows // 4)}

    def measure() -> Sample:
        stream = _load(session, "kafka", where | quarter | {"subscribe": backlog})
        sample = _available_now(job, stream)
        topic = topics.create(job.broker)
        sender = senders.sending(senders.send_to_kafka, job.broker, topic, _seconds(job))
        return sample | _trickle(job, _load(session, "kafka", where | {"subscribe": topic}), sender)

    return measure


def delta(job: Job) -> Measure:
    """A Delta table that grows by a commit at a time."""
    import pyarrow as pa
    from deltalake import DeltaTable

    session = spark_session.start(job)
    columns = pa.schema([("key", pa.binary()), ("value", pa.binary())])

    def measure() -> Sample:
        table = str(job.path("delta", uuid.uuid4().hex))
        DeltaTable.create(table, columns)
        sender = senders.sending(senders.send_to_delta, table, _seconds(job))
        return _trickle(job, _load(session, "delta", {"path": table}), sender)

    return measure


def limit(job: Job) -> Measure:
    """Ready-made batches, and a file that grows."""
    folder = str(write_batches(job, job.sizes.spark_rows))
    session = spark_session.start(job)
    session.dataSource.register(LimitSource)
    quarter = str(job.sizes.spark_rows // 4)

    def measure() -> Sample:
        sample = _available_now(job, _load(session, "limit", {"path": folder, "rows": quarter}))
        growing = job.path("limit", "growing", uuid.uuid4().hex)
        growing.touch()
        sender = senders.sending(senders.send_to_file, str(growing), _seconds(job))
        return sample | _trickle(job, _load(session, "limit", {"path": str(growing)}), sender)

    return measure
