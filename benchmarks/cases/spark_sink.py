"""Spark batch writes of two million rows, made by Spark as it writes them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from benchmarks import dataset, spark_session
from benchmarks.clock import stopwatch
from benchmarks.job import KEY_BYTES, PARTITIONS, VALUE_BYTES, Job, Measure, Sample

TUNED = {"kafka.linger.ms": "20", "kafka.batch.size": str(256 << 10)}
NOISE_ROWS = 1_000


def _rows(session: SparkSession, count: int) -> DataFrame:
    """Keys that count, values cut from noise: cheap to make, and not to be compressed."""
    noise = b"".join(dataset.values(NOISE_ROWS)).hex()
    last = (NOISE_ROWS - 1) * VALUE_BYTES
    numbers = session.range(0, count, 1, PARTITIONS)
    return numbers.selectExpr(
        f"cast(lpad(cast(id as string), {KEY_BYTES}, '0') as binary) as key",
        f"substring(X'{noise}', cast(id * 37 % {last} as int) + 1, {VALUE_BYTES}) as value",
    )


def _rate(job: Job, write: Callable[[], None]) -> float:
    with stopwatch() as watch:
        write()
    return job.sizes.spark_rows / watch.seconds


def kmq(job: Job) -> Measure:
    """kmq, exactly once, onto the disk as it does by default."""
    from benchmarks import stores

    rows = _rows(spark_session.start(job), job.sizes.spark_rows)

    def measure() -> Sample:
        with stores.fresh(job, "fsync") as (store, path):
            writer = rows.write.format("kmq").option("topic", stores.TOPIC).mode("append")
            rate = _rate(job, lambda: writer.save(path))
            stores.check(store, job.sizes.spark_rows)
        return {"rate": rate}

    return measure


def kafka(job: Job) -> Measure:
    """The Kafka connector, at least once and into the page cache: its defaults, then tuned."""
    from benchmarks.peers import topics

    rows = _rows(spark_session.start(job), job.sizes.spark_rows)

    def once(settings: dict[str, str]) -> float:
        topic = topics.create(job.broker)
        where = {"kafka.bootstrap.servers": job.broker, "topic": topic}
        writer = rows.write.format("kafka").options(**where, **settings)
        rate = _rate(job, writer.save)
        topics.check(job.broker, topic, job.sizes.spark_rows)
        topics.delete(job.broker, topic)
        return rate

    return lambda: {"rate": once({}), "tuned_rate": once(TUNED)}


def delta(job: Job) -> Measure:
    """A new Delta table."""
    session = spark_session.start(job)
    rows = _rows(session, job.sizes.spark_rows)

    def measure() -> Sample:
        table = str(job.path("delta", uuid.uuid4().hex))
        rate = _rate(job, lambda: rows.write.format("delta").save(table))
        found = session.read.format("delta").load(table).count()
        if found != job.sizes.spark_rows:
            raise RuntimeError(f"Delta holds {found} of {job.sizes.spark_rows} rows")
        shutil.rmtree(table)
        return {"rate": rate}

    return measure


def rows_only(job: Job) -> Measure:
    """The noop sink: what making the rows costs everybody."""
    writer = _rows(spark_session.start(job), job.sizes.spark_rows).write.format("noop")
    return lambda: {"rate": _rate(job, writer.mode("overwrite").save)}
