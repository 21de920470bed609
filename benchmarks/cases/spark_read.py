"""Spark batch reads of two million records: every column into the noop sink, and an aggregate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame

from benchmarks import spark_session
from benchmarks.clock import middle, stopwatch
from benchmarks.job import Job, Measure, Sample
from benchmarks.limit_source import LimitSource, write_batches, write_typed_batches

TUNED = {
    "kafka.max.poll.records": "10000",
    "kafka.fetch.max.bytes": str(8 << 20),
    "kafka.max.partition.fetch.bytes": str(8 << 20),
}

TYPED_COLUMNS = ", ".join(
    f"{name}{number} {kind}"
    for name, kind, count in (("n", "bigint", 10), ("x", "double", 5), ("text", "string", 5))
    for number in range(count)
)

_Load = Callable[[], DataFrame]


def _checked(load: _Load, rows: int) -> _Load:
    """The same, once everything was counted."""
    found = load().count()
    if found != rows:
        raise RuntimeError(f"Spark counts {found} of {rows} records")
    return load


def _noop(load: _Load, rows: int) -> float:
    """Rows per second, every column read and dropped."""
    with stopwatch() as watch:
        load().write.format("noop").mode("overwrite").save()
    return rows / watch.seconds


def _sums(load: _Load, rows: int) -> float:
    """Rows per second, counted, and the lengths of their values summed."""
    with stopwatch() as watch:
        (row,) = load().selectExpr("count(*)", "sum(length(value))").collect()
    if row[0] != rows:
        raise RuntimeError(f"Spark counts {row[0]} of {rows} records")
    return rows / watch.seconds


def _both(load: _Load, rows: int) -> Sample:
    return {"rate": _noop(load, rows), "sum_rate": _sums(load, rows)}


def _measured(load: _Load, rows: int, times: int) -> Measure:
    """Both; a read of many times the records warms the JVM up by itself."""
    once = partial(_both, load, rows)
    return once if times > 1 else partial(middle, once)


def kmq(job: Job, times: int = 1) -> Measure:
    """kmq: a topic written by send_arrow()."""
    from benchmarks import stores

    rows = job.sizes.spark_rows * times
    path = str(stores.filled_by_arrow(job, job.sizes.spark_rows, times=times))
    reader = spark_session.start(job).read.format("kmq").option("subscribe", stores.TOPIC)
    load = _checked(partial(reader.load, path), rows)
    return _measured(load, rows, times)


def kmq_sent(job: Job) -> Measure:
    """kmq: a topic written record by record."""
    from benchmarks import stores

    rows = job.sizes.spark_rows
    path = str(stores.filled_by_send(job, rows))
    reader = spark_session.start(job).read.format("kmq").option("subscribe", stores.TOPIC)
    load = _checked(partial(reader.load, path), rows)
    return partial(middle, lambda: {"rate": _noop(load, rows)})


def kmq_typed(job: Job) -> Measure:
    """kmq: a sealed typed topic, all of its 20 columns and two of them."""
    from benchmarks import stores

    rows = 4 * job.sizes.spark_rows  # two columns of fewer take no longer than starting a query
    path = str(stores.filled_with_columns(job, rows))
    session = spark_session.start(job)

    def load(**options: str) -> DataFrame:  # a reader keeps its options: one for each read
        return session.read.format("kmq").load(path, subscribe=stores.TOPIC, **options)

    every = _checked(load, rows)
    two = partial(load, columns="n3,text2")
    return partial(middle, lambda: {"rate": _noop(every, rows), "two_rate": _noop(two, rows)})


def limit_typed(job: Job) -> Measure:
    """The same 20 columns from a Python source that has them ready-made, and two of them."""
    rows = 4 * job.sizes.spark_rows
    folder = str(write_typed_batches(job, rows))
    session = spark_session.start(job)
    session.dataSource.register(LimitSource)
    load = partial(session.read.format("limit").load, folder)
    every = _checked(partial(load, columns=TYPED_COLUMNS), rows)
    two = partial(load, columns="n3 bigint, text2 string")
    return partial(middle, lambda: {"rate": _noop(every, rows), "two_rate": _noop(two, rows)})


def kafka(job: Job) -> Measure:
    """The Kafka connector with its defaults, and with bigger polls and fetches."""
    from benchmarks.peers import topics

    rows = job.sizes.spark_rows
    topic = topics.fill(job.broker, rows)
    default, tuned = (_kafka_load(job, topic, settings) for settings in ({}, TUNED))
    _checked(default, rows)

    def measure() -> Sample:
        fast = _both(tuned, rows)
        tuned_rates = {"tuned_rate": fast["rate"], "tuned_sum_rate": fast["sum_rate"]}
        return tuned_rates | _both(default, rows)

    return partial(middle, measure)


def kafka_tuned(job: Job, times: int = 1) -> Measure:
    """The Kafka connector with bigger polls and fetches alone."""
    from benchmarks.peers import topics

    rows = job.sizes.spark_rows * times
    topic = topics.fill(job.broker, job.sizes.spark_rows, times=times)
    load = _checked(_kafka_load(job, topic, TUNED), rows)
    return _measured(load, rows, times)


def _kafka_load(job: Job, topic: str, settings: dict[str, str]) -> _Load:
    where = {"kafka.bootstrap.servers": job.broker, "subscribe": topic, **settings}
    return spark_session.start(job).read.format("kafka").options(**where).load


def limit(job: Job, times: int = 1) -> Measure:
    """Ready-made Arrow batches from a Python source."""
    rows = job.sizes.spark_rows * times
    folder = str(write_batches(job, job.sizes.spark_rows, times=times))
    session = spark_session.start(job)
    session.dataSource.register(LimitSource)
    load = _checked(partial(session.read.format("limit").load, folder), rows)
    return _measured(load, rows, times)


def delta(job: Job, times: int = 1) -> Measure:
    """A Delta table of the same columns."""
    rows = job.sizes.spark_rows * times
    folder = str(write_batches(job, job.sizes.spark_rows, times=times))
    session = spark_session.start(job)
    session.dataSource.register(LimitSource)
    table = str(job.path("delta", "read", str(times)))
    session.read.format("limit").load(folder).write.format("delta").save(table)
    load = _checked(partial(session.read.format("delta").load, table), rows)
    return _measured(load, rows, times)
