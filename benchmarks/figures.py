"""What is measured: the cases of each group, and the figures that are made of them."""

from __future__ import annotations

from dataclasses import dataclass

#: Peers that come as jars.
JARS = ("kafka", "delta")


@dataclass(frozen=True)
class Figure:
    """One line of the table: a metric of kmq over the same metric of a peer, and what it should be.

    `target` is what is to be reached now, `later` what comes after; a ratio of rates should be at
    least that, one of times, sizes or multiples at most. `ours` and `peer` are written
    `case.metric`; where there is no peer but a bound, `peer` is that number.
    """

    text: str
    ours: str
    peer: str | float
    target: float | None = None
    later: float | None = None

    @property
    def smaller_is_better(self) -> bool:
        """Whether the metric is a time, a size in memory or a multiple."""
        return self.ours.endswith(("_ms", "_mb", "_times"))


@dataclass(frozen=True)
class Group:
    """Cases that are measured in turns, and the figures they give."""

    cases: tuple[str, ...]
    figures: tuple[Figure, ...]
    spark: bool = False

    def kept(self, *, jars: bool) -> tuple[str, ...]:
        """The cases that can run, with or without the peers' jars."""
        return tuple(case for case in self.cases if jars or not any(peer in case for peer in JARS))


def _named(module: str, *functions: str) -> tuple[str, ...]:
    return tuple(f"{module}:{function}" for function in functions)


PRODUCE = Group(
    _named(
        "produce",
        "kmq_send",
        "kafka_callback",
        "kmq_send_kept",
        "kafka_callback_kept",
        "kmq_send_callback",
        "kafka_produce",
        "kmq_send_batch",
        "kafka_produce_batch",
        "kmq_send_arrow",
        "disk_write",
        "kmq_send_arrow_fsync",
        "disk_sync_once",
        "kmq_send_arrow_fsync_each",
        "disk_sync_each",
    ),
    (
        Figure(
            "send() with its future, os / Kafka produce() with callback",
            "kmq_send.rate",
            "kafka_callback.rate",
            target=1.5,
        ),
        Figure(
            "send() with its future, os / Kafka produce() without callback",
            "kmq_send.rate",
            "kafka_produce.rate",
            later=1.5,
        ),
        Figure(
            "send() with every future kept, os / Kafka produce(), callback keeps every message",
            "kmq_send_kept.rate",
            "kafka_callback_kept.rate",
            target=1.5,
        ),
        Figure(
            "send() with every future kept, os / Kafka produce() with callback",
            "kmq_send_kept.rate",
            "kafka_callback.rate",
        ),
        Figure(
            "send() with on_delivery, os / Kafka produce() with callback",
            "kmq_send_callback.rate",
            "kafka_callback.rate",
        ),
        Figure(
            "send_batch() of 1,000, os / Kafka produce_batch()",
            "kmq_send_batch.rate",
            "kafka_produce_batch.rate",
            target=2.0,
            later=4.0,
        ),
        Figure(
            "send_arrow() of 10,000, os / Kafka produce_batch()",
            "kmq_send_arrow.rate",
            "kafka_produce_batch.rate",
            target=8.0,
            later=15.0,
        ),
        Figure(
            "send_arrow() of 10,000, os / plain write of the same bytes",
            "kmq_send_arrow.rate",
            "disk_write.rate",
        ),
        Figure(
            "send_arrow() of 10,000, fsync, flushed / plain write + one fdatasync",
            "kmq_send_arrow_fsync.rate",
            "disk_sync_once.rate",
            target=0.7,
            later=0.9,
        ),
        Figure(
            "send_arrow() of 10,000, fsync, each waited for / plain write + fdatasync each",
            "kmq_send_arrow_fsync_each.rate",
            "disk_sync_each.rate",
            target=0.7,
            later=0.9,
        ),
    ),
)

CONSUME = Group(
    _named(
        "consume",
        "kmq_poll",
        "kafka_poll",
        "kafka_poll_untuned",
        "kmq_consume",
        "kafka_consume",
        "kmq_consume_arrow",
        "kafka_consume_arrow",
    ),
    (
        Figure("poll() / Kafka tuned", "kmq_poll.rate", "kafka_poll.rate", 1.0, 2.0),
        Figure("poll() / Kafka untuned", "kmq_poll.rate", "kafka_poll_untuned.rate"),
        Figure("consume(500) / Kafka tuned", "kmq_consume.rate", "kafka_consume.rate", 0.6, 1.2),
        Figure(
            "consume_arrow() / Kafka consume(10000) to Arrow, tuned",
            "kmq_consume_arrow.rate",
            "kafka_consume_arrow.rate",
            target=20.0,
            later=100.0,
        ),
    ),
)

LATENCY = Group(
    _named("latency", "kmq_os", "kafka_os", "kmq_fsync", "kafka_fsync", "disk"),
    (
        Figure("process to process, os, p50 / Kafka", "kmq_os.p50_ms", "kafka_os.p50_ms", 0.5, 0.2),
        Figure(
            "process to process, fsync, p50 / Kafka with flush.messages=1",
            "kmq_fsync.p50_ms",
            "kafka_fsync.p50_ms",
            target=0.7,
        ),
        Figure(
            "process to process, fsync, p50 / this disk's write + fdatasync",
            "kmq_fsync.p50_ms",
            "disk.p50_ms",
            later=1.2,
        ),
        Figure("process to process, os, p99 / Kafka", "kmq_os.p99_ms", "kafka_os.p99_ms"),
    ),
)

SPARK_READ = Group(
    _named("spark_read", "kmq", "kafka", "delta", "limit"),
    (
        Figure("batch read / Kafka", "kmq.rate", "kafka.rate", target=2.5),
        Figure("batch read / Kafka tuned", "kmq.rate", "kafka.tuned_rate", later=2.5),
        Figure("batch read / limit", "kmq.rate", "limit.rate", 0.75, 0.95),
        Figure("batch read / Delta", "kmq.rate", "delta.rate"),
        Figure("batch read of a topic written by send() / limit", "kmq.sent_rate", "limit.rate"),
    ),
    spark=True,
)

SPARK_STREAM = Group(
    (*_named("spark_stream", "kmq", "kafka", "limit"), *_named("spark_driver", "own_share")),
    (
        Figure(
            "availableNow in 4 batches / limit",
            "kmq.available_now_rate",
            "limit.available_now_rate",
            target=0.85,
            later=0.97,
        ),
        Figure(
            "availableNow in 4 batches / Kafka",
            "kmq.available_now_rate",
            "kafka.available_now_rate",
        ),
        Figure("trickle, median batch / limit", "kmq.batch_ms", "limit.batch_ms", target=1.1),
        Figure("trickle, median batch / Kafka", "kmq.batch_ms", "kafka.batch_ms", later=1.0),
        Figure("trickle, end to end p50 / limit", "kmq.p50_ms", "limit.p50_ms", target=1.1),
        Figure("trickle, end to end p50 / Kafka", "kmq.p50_ms", "kafka.p50_ms", later=1.0),
        Figure("trickle, kmq's share of the driver's work", "own_share.driver_ms", 10.0, 1.0),
    ),
    spark=True,
)

SPARK_SINK = Group(
    _named(
        "spark_sink",
        "kmq",
        "kafka",
        "delta",
        "rows_only",
        "kmq_stream",
        "kafka_stream",
        "driver_commit",
    ),
    (
        Figure("batch sink, exactly once / Kafka, at least once", "kmq.rate", "kafka.rate"),
        Figure("batch sink, exactly once / Kafka tuned", "kmq.rate", "kafka.tuned_rate", 1.2, 1.8),
        Figure("batch sink / Delta", "kmq.rate", "delta.rate", later=1.3),
        Figure("batch sink / making the rows only", "kmq.rate", "rows_only.rate"),
        Figure(
            "stream from kmq to kmq, exactly once / Kafka to Kafka, at least once",
            "kmq_stream.rate",
            "kafka_stream.rate",
            later=3.0,
        ),
        Figure(
            "stream from kmq to kmq / Kafka to Kafka tuned",
            "kmq_stream.rate",
            "kafka_stream.tuned_rate",
        ),
        Figure("the driver's commit of 1,000 files", "driver_commit.commit_ms", 50.0, target=1.0),
        Figure("bytes of it for each", "driver_commit.bytes_a_file_times", 100.0, target=1.0),
    ),
    spark=True,
)

GROUP_COMMIT = Group(
    _named("group_commit", "kmq_one", "kmq_many", "disk_one"),
    (
        Figure("16 processes, fsync / one process", "kmq_many.rate", "kmq_one.rate", target=4.0),
        Figure("one process, fsync / plain write + fdatasync", "kmq_one.rate", "disk_one.rate"),
    ),
)

BUCKET = Group(
    _named(
        "bucket",
        *("puts", "one_writer", "eight_in_turns", "eight_writers"),
        *("puts_slow", "one_writer_slow", "eight_writers_slow"),
    ),
    (
        Figure("commits, one writer / bare uploads", "one_writer.rate", "puts.rate", 0.8),
        Figure("commits, 8 writers / bare uploads", "eight_writers.rate", "puts.rate", 0.8),
        Figure(
            "commits, 8 writers / bare uploads of 8 clients that read each other's",
            "eight_writers.rate",
            "eight_in_turns.rate",
            0.8,
        ),
        Figure(
            "commits, 8 writers / their uploads", "eight_writers.rate", "eight_writers.uploads", 0.5
        ),
        Figure(
            "20 ms away: commits, one writer / bare uploads",
            "one_writer_slow.rate",
            "puts_slow.rate",
            0.8,
        ),
        Figure(
            "20 ms away: commits, 8 writers / bare uploads",
            "eight_writers_slow.rate",
            "puts_slow.rate",
            0.8,
        ),
        Figure(
            "20 ms away: commits, 8 writers / their uploads",
            "eight_writers_slow.rate",
            "eight_writers_slow.uploads",
            0.5,
        ),
    ),
)

ENGINE = Group(
    _named(
        "engine",
        *("kmq_read", "pyarrow_read", "pyarrow_map", "seal", "compact", "lookup", "memory"),
        *("maintained", "quiet", "all_columns", "two_columns"),
    ),
    (
        Figure(
            "sealed read, checksums verified / plain pyarrow",
            "kmq_read.rate",
            "pyarrow_read.rate",
            0.9,
        ),
        Figure(
            "sealed read, checksums verified / plain pyarrow, mapped and not looked at",
            "kmq_read.rate",
            "pyarrow_map.rate",
        ),
        Figure(
            "sealed typed read, 2 of 20 columns / all",
            "two_columns.rate",
            "all_columns.rate",
            target=5.0,
        ),
        Figure("seal, records per second of a core", "seal.cpu_rate", 3e6, 1.0),
        Figure("compact, records per second of a core", "compact.cpu_rate", 3e6, 1.0),
        Figure("write amplification, sealed", "seal.amplification_times", 2.1, 1.0),
        Figure("one record by offset, warm, p50", "lookup.p50_ms", 1.0, 1.0),
        Figure("producer beside maintenance / alone", "maintained.rate", "quiet.rate", 0.85),
        Figure(
            "producer's p99 beside maintenance / alone", "maintained.p99_ms", "quiet.p99_ms", 2.0
        ),
        Figure("memory to seal", "memory.seal_mb", 500.0, 1.0),
        Figure("memory to compact", "memory.compact_mb", 500.0, 1.0),
        Figure("memory to read", "memory.read_mb", 500.0, 1.0),
    ),
)

MANIFEST = Group(
    (*_named("manifest", "segments"), *_named("many_partitions", "planning")),
    (
        Figure("open a store of 1,000,000 segments", "segments.open_ms", 50.0, 1.0),
        Figure("find an offset in it", "segments.offset_ms", 1.0, 1.0),
        Figure("find a time in it", "segments.time_ms", 1.0, 1.0),
        Figure("plan a read of all of it", "segments.plan_ms", 100.0, 1.0),
        Figure("memory of doing so", "segments.memory_mb", 200.0, 1.0),
        Figure("plan the table of all of them", "segments.tasks_ms", 50.0, 1.0),
        Figure("read that table with one core", "segments.table_ms", 5_000.0, 1.0),
        Figure(
            "plan a read of 1,000,000 segments in 10,000 partitions for Spark",
            "planning.plan_ms",
            200.0,
            1.0,
        ),
        Figure("offset JSON of 10,000 partitions", "planning.offset_mb", 1.0, 1.0),
        Figure(
            "planning of one trigger over 10,000 partitions, all with backlog",
            "planning.trigger_ms",
            20.0,
            1.0,
        ),
    ),
)

GROUPS = {
    "produce": PRODUCE,
    "consume": CONSUME,
    "latency": LATENCY,
    "spark_read": SPARK_READ,
    "spark_stream": SPARK_STREAM,
    "spark_sink": SPARK_SINK,
    "group_commit": GROUP_COMMIT,
    "bucket": BUCKET,
    "engine": ENGINE,
    "manifest": MANIFEST,
}
