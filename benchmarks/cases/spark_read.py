"""Spark batch reads of two million records, every column, into the noop sink."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame

from benchmarks import spark_session
from benchmarks.clock import stopwatch
from benchmarks.job import Job, Measure, Sample
from benchmarks.limit_source import LimitSource, write_batches

TUNED = {
    "kafka.max.poll.records": "10000",
    "kafka.fetch.max.bytes": str(8 << 20),
    "kafka.max.partition.fetch.bytes": str(8 << 20),
}


def _reading(load: Callable[[], DataFrame], rows: int) -> Callable[[], float]:
    """A function that reads everything once and gives the rate; the count is checked beforehand."""
    found = load().count()
    if found != rows:
        raise RuntimeError(f"Spark counts {found} of {rows} records")

    def rate() -> float:
        with stopwatch() as watch:
            load().write.format("noop").mode("overwrite").save()
        return rows / watch.seconds

    return rate


def kmq(job: Job) -> Measure:
    """kmq: a topic written by send_arrow(), and one written record by record."""
    from benchmarks import stores

    rows = job.sizes.spark_rows
    paths = [str(fill(job, rows)) for fill in (stores.filled_by_arrow, stores.filled_by_send)]
    reader = spark_session.start(job).read.format("kmq").option("subscribe", stores.TOPIC)
    arrow, sent = (_reading(partial(reader.load, path), rows) for path in paths)
    return lambda: {"rate": arrow(), "sent_rate": sent()}


def kafka(job: Job) -> Measure:
    """The Kafka connector with its defaults, and with bigger polls and fetches."""
    from benchmarks.peers import topics

    rows = job.sizes.spark_rows
    topic = topics.fill(job.broker, rows)
    where = {"kafka.bootstrap.servers": job.broker, "subscribe": topic}
    session = spark_session.start(job)

    def load(options: dict[str, str]) -> Callable[[], float]:
        return _reading(lambda: session.read.format("kafka").options(**options).load(), rows)

    default, tuned = load(where), load(where | TUNED)
    return lambda: {"rate": default(), "tuned_rate": tuned()}


def limit(job: Job) -> Measure:
    """Ready-made Arrow batches from a Python source."""
    folder = write_batches(job, job.sizes.spark_rows)
    session = spark_session.start(job)
    session.dataSource.register(LimitSource)
    rate = _reading(lambda: session.read.format("limit").load(str(folder)), job.sizes.spark_rows)
    return lambda: {"rate": rate()}


def delta(job: Job) -> Measure:
    """A Delta table of the same columns."""
    folder = write_batches(job, job.sizes.spark_rows)
    session = spark_session.start(job)
    session.dataSource.register(LimitSource)
    table = str(job.path("delta", "read"))
    session.read.format("limit").load(str(folder)).write.format("delta").save(table)
    rate = _reading(lambda: session.read.format("delta").load(table), job.sizes.spark_rows)

    def measure() -> Sample:
        return {"rate": rate()}

    return measure
