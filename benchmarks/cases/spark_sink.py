"""Spark writes of two million rows: made by Spark in a batch, or streamed from topic to topic.

And what the driver does for a thousand files that tasks have staged.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks import dataset, spark_session
from benchmarks.clock import middle, stopwatch
from benchmarks.job import KEY_BYTES, PARTITIONS, VALUE_BYTES, Job, Measure, Sample
from benchmarks.limit_source import LimitSource, write_batches

TUNED = {"kafka.linger.ms": "20", "kafka.batch.size": str(256 << 10)}
NOISE_ROWS = 1_000
STAGED_FILES = 1_000


def _rows(session: SparkSession, count: int) -> DataFrame:
    """Keys that count, values cut from noise: cheap to make, and not to be compressed."""
    noise = b"".join(dataset.values(NOISE_ROWS)).hex()
    last = (NOISE_ROWS - 1) * VALUE_BYTES
    numbers = session.range(0, count, 1, PARTITIONS)
    return numbers.selectExpr(
        f"cast(lpad(cast(id as string), {KEY_BYTES}, '0') as binary) as key",
        f"substring(X'{noise}', cast(id * 37 % {last} as int) + 1, {VALUE_BYTES}) as value",
    )


def _rate(job: Job, write: Callable[[], object]) -> float:
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

    return partial(middle, measure)


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

    return partial(middle, lambda: {"rate": once({}), "tuned_rate": once(TUNED)})


def delta(job: Job) -> Measure:
    """A new Delta table."""
    session = spark_session.start(job)
    rows = _rows(session, job.sizes.spark_rows)

    def measure() -> Sample:
        table = str(job.path("delta", uuid.uuid4().hex))
        rate = _rate(job, lambda: rows.write.format("delta").save(table))
        _check_delta(session, table, job.sizes.spark_rows)
        shutil.rmtree(table)
        return {"rate": rate}

    return partial(middle, measure)


def _check_delta(session: SparkSession, table: str, rows: int) -> None:
    found = session.read.format("delta").load(table).count()
    if found != rows:
        raise RuntimeError(f"Delta holds {found} of {rows} rows")


def limit(job: Job) -> Measure:
    """A Python sink that writes the same batches to files, durably, and keeps no order of them."""
    session = spark_session.start(job)
    session.dataSource.register(LimitSource)
    rows = _rows(session, job.sizes.spark_rows)

    def measure() -> Sample:
        folder = job.path("limit", uuid.uuid4().hex)
        folder.mkdir()
        writer = rows.write.format("limit").mode("append")
        rate = _rate(job, lambda: writer.save(str(folder)))
        _check_files(folder, job.sizes.spark_rows)
        return {"rate": rate}

    return partial(middle, measure)


def _check_files(folder: Path, rows: int) -> None:
    found = sum(pa.ipc.open_file(file).read_all().num_rows for file in folder.iterdir())
    if found != rows:
        raise RuntimeError(f"the files hold {found} of {rows} rows")
    shutil.rmtree(folder)


def rows_only(job: Job) -> Measure:
    """The noop sink: what making the rows costs everybody."""
    writer = _rows(spark_session.start(job), job.sizes.spark_rows).write.format("noop")
    return partial(middle, lambda: {"rate": _rate(job, writer.mode("overwrite").save)})


def _topic_stream(
    job: Job, session: SparkSession, name: str, source: Mapping[str, str], sink: Mapping[str, str]
) -> float:
    """Stream keys and values from one topic into another in four batches."""
    quarter = str(job.sizes.spark_rows // 4)
    begin = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": quarter}
    return _stream(job, session, name, {**begin, **source}, sink)


def _stream(
    job: Job, session: SparkSession, name: str, source: Mapping[str, str], sink: Mapping[str, str]
) -> float:
    """Stream keys and values from one place into another, until all is there."""
    rows = session.readStream.format(name).options(**source).load()
    writer = rows.select("key", "value").writeStream.format(name).options(**sink)
    writer = writer.option("checkpointLocation", str(job.path("checkpoints", uuid.uuid4().hex)))
    return _rate(job, lambda: writer.trigger(availableNow=True).start().awaitTermination())


def kmq_stream(job: Job) -> Measure:
    """From one kmq store into another, exactly once; tuned, only what is written is read."""
    from benchmarks import stores

    backlog = str(stores.filled_by_arrow(job, job.sizes.spark_rows))
    session = spark_session.start(job)

    def once(settings: dict[str, str]) -> float:
        with stores.fresh(job, "fsync") as (store, path):
            source = {"path": backlog, "subscribe": stores.TOPIC, **settings}
            rate = _topic_stream(job, session, "kmq", source, {"path": path, "topic": stores.TOPIC})
            stores.check(store, job.sizes.spark_rows)
        return rate

    tuned = {"columns": "key,value"}
    return partial(middle, lambda: {"rate": once({}), "tuned_rate": once(tuned)})


def limit_stream(job: Job) -> Measure:
    """From ready-made batches into files: what Spark takes for a source and a sink in Python."""
    backlog = str(write_batches(job, job.sizes.spark_rows))
    session = spark_session.start(job)
    session.dataSource.register(LimitSource)
    source = {"path": backlog, "rows": str(job.sizes.spark_rows // 4)}

    def measure() -> Sample:
        folder = job.path("limit", uuid.uuid4().hex)
        folder.mkdir()
        rate = _stream(job, session, "limit", source, {"path": str(folder)})
        _check_files(folder, job.sizes.spark_rows)
        return {"rate": rate}

    return partial(middle, measure)


def kafka_stream(job: Job) -> Measure:
    """From one Kafka topic into another, at least once."""
    from benchmarks.peers import topics

    backlog = topics.fill(job.broker, job.sizes.spark_rows)
    session = spark_session.start(job)
    where = {"kafka.bootstrap.servers": job.broker}

    def once(settings: dict[str, str]) -> float:
        topic = topics.create(job.broker)
        sink = where | settings | {"topic": topic}
        rate = _topic_stream(job, session, "kafka", where | {"subscribe": backlog}, sink)
        topics.check(job.broker, topic, job.sizes.spark_rows)
        topics.delete(job.broker, topic)
        return rate

    return partial(middle, lambda: {"rate": once({}), "tuned_rate": once(TUNED)})


def delta_stream(job: Job) -> Measure:
    """From one Delta table into another, exactly once, in four batches too."""
    session = spark_session.start(job)
    backlog = str(job.path("delta", "backlog"))
    rows = _rows(session, job.sizes.spark_rows).repartition(4 * PARTITIONS)
    rows.write.format("delta").mode("overwrite").save(backlog)

    def measure() -> Sample:
        table = str(job.path("delta", uuid.uuid4().hex))
        source = {"path": backlog, "maxFilesPerTrigger": str(PARTITIONS)}
        rate = _stream(job, session, "delta", source, {"path": table})
        _check_delta(session, table, job.sizes.spark_rows)
        shutil.rmtree(table)
        return {"rate": rate}

    return partial(middle, measure)


def driver_commit(job: Job) -> Measure:
    """The driver's commit for a thousand staged files, from messages to disk."""
    import pickle

    from benchmarks import stores
    from kmq_spark.datasource.executor.writing import write_task
    from kmq_spark.datasource.options.sink_options import SinkOptions
    from kmq_spark.datasource.sink.commit import commit_written
    from kmq_spark.datasource.sink.sink import Written, open_sink
    from kmq_storage.format.entries import BatchIdEntry, encode_entry

    def measure() -> Sample:
        with stores.fresh(job, "fsync") as (store, path):
            sink = open_sink(SinkOptions(url=path, topic=stores.TOPIC))
            keyless = [rows.select(["value"]) for rows in dataset.arrow_batches(10_000, 10_000)]
            (entry,) = write_task(sink, keyless, task=0).staged
            staged = [entry._replace(staged=uuid.uuid4().bytes) for _ in range(STAGED_FILES)]
            raw = [pickle.dumps(Written((each,), (), "query")) for each in staged]
            with stopwatch() as watch:
                written = [pickle.loads(message) for message in raw]
                commit_written(store.log, written, BatchIdEntry("query", 0))
        return {
            "commit_ms": watch.seconds * 1e3,
            "bytes_a_file_times": len(encode_entry(entry.bound(0))),
        }

    return partial(middle, measure)
