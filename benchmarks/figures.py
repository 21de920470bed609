"""What is measured: the cases of each group, and the figures that are made of them."""

from __future__ import annotations

from benchmarks.group import Figure, Group, named
from benchmarks.spark_figures import (
    SPARK_MEMORY,
    SPARK_READ,
    SPARK_READ_LARGE,
    SPARK_SINK,
    SPARK_STREAM,
    SPARK_TABLES,
)

PRODUCE = Group(
    named(
        "produce",
        "kmq_send",
        "kafka_callback",
        "kmq_send_threads",
        "kafka_callback_threads",
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
            "send() from ten threads, os / Kafka produce() with callback, from ten threads",
            "kmq_send_threads.rate",
            "kafka_callback_threads.rate",
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
    named(
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
    named("latency", "kmq_os", "kafka_os", "kmq_fsync", "kafka_fsync", "disk"),
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

GROUP_COMMIT = Group(
    named("group_commit", "kmq_one", "kmq_many", "disk_one"),
    (
        Figure("16 processes, fsync / one process", "kmq_many.rate", "kmq_one.rate", target=4.0),
        Figure("one process, fsync / plain write + fdatasync", "kmq_one.rate", "disk_one.rate"),
    ),
)

SHARING = Group(
    named("sharing", "takeover", "offset_commits"),
    (
        Figure("one of 10 members on 100 partitions dies", "takeover.max_ms", 1_000, 1.0),
        Figure("offset commits of groups per second, os", "offset_commits.rate", 1e4, 1.0),
        Figure("MB kept of 100,000 beside the newest log file", "offset_commits.kept_mb", 1.0, 1.0),
    ),
)

QUEUES = Group(
    named(
        "queues",
        *("one_by_one", "in_step", "sqlite_one_by_one", "redis_one_by_one"),
        *("groups_fsync", "sqlite_groups_fsync", "redis_groups_fsync"),
        *("arrow", "one_receiver", "eight_receivers", "tens", "tens_in_threads"),
        *("delayed", "in_flight", "lateness"),
    ),
    (
        Figure("put, receive, ack one by one, os, per second", "one_by_one.rate", 5e4, 1.0),
        Figure("put, receive, ack / SQLite, os", "one_by_one.rate", "sqlite_one_by_one.rate", 5.0),
        Figure("the same in step / SQLite, os", "in_step.rate", "sqlite_one_by_one.rate"),
        Figure("put, receive, ack / Redis, os", "one_by_one.rate", "redis_one_by_one.rate"),
        Figure("the same in step / Redis, os", "in_step.rate", "redis_one_by_one.rate"),
        Figure("by groups of 100, fsync, records per second", "groups_fsync.rate", 2e4, 1.0),
        Figure(
            "by groups of 100 / SQLite, fsync", "groups_fsync.rate", "sqlite_groups_fsync.rate", 5.0
        ),
        Figure("by groups of 100 / Redis, fsync", "groups_fsync.rate", "redis_groups_fsync.rate"),
        Figure("receive and ack by Arrow, records per second", "arrow.rate", 1e6, 1.0),
        Figure("8 receivers in 8 processes / one", "eight_receivers.rate", "one_receiver.rate", 1),
        Figure("receive and ack by ten, 8 threads / one", "tens_in_threads.rate", "tens.rate"),
        Figure("MB to open a store with 1,000,000 delayed records", "delayed.held_mb", 500, 1.0),
        Figure("its opening and counting them, of a second", "delayed.open_ms", 1_000, 1.0),
        Figure("MB to hold 1,000,000 in flight, own memory", "in_flight.own_mb", 500, 1.0),
        Figure("the same with the pages of files", "in_flight.peak_mb", 500, 1.0),
        Figure(
            "ms that a due record is late beside a million others, p99, of 100",
            "lateness.p99_ms",
            100,
            1.0,
        ),
    ),
)

TRANSACTIONS = Group(
    named("transactions", "beside_commits"),
    (
        Figure(
            "transaction of 10 records, 3 topics / a batch of 10, fsync",
            "beside_commits.transaction_ms",
            "beside_commits.single_ms",
            1.2,
        ),
    ),
)

BUCKET = Group(
    named(
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

REQUESTS = Group(
    named("requests", "one_writer", "eight_writers", "follower", "lookup"),
    (
        Figure("requests per commit, one writer", "one_writer.all_requests", 1.0, 1.05),
        Figure("uploads per commit, 8 writers", "eight_writers.put_requests", 2.0, 1.0),
        Figure(
            "requests per commit, 8 writers that read each other's",
            "eight_writers.all_requests",
            8.0,
        ),
        Figure("requests per commit of a waiting follower", "follower.all_requests", 1.0, 1.0),
        Figure("most requests for one record by offset", "lookup.most_requests", 2.0, 1.0),
    ),
)

ENGINE = Group(
    named(
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

UPKEEP = Group(
    named(
        "engine",
        *("maintained_by_default", "quiet_for_long", "maintained_with_large", "quiet_with_large"),
    ),
    (
        Figure(
            "producer that maintains its store, as by default / one that doesn't",
            "engine:maintained_by_default.rate",
            "engine:quiet_for_long.rate",
            0.85,
        ),
        Figure(
            "its p99 / that of one that doesn't",
            "engine:maintained_by_default.p99_ms",
            "engine:quiet_for_long.p99_ms",
            2.0,
        ),
        Figure(
            "the same with batches of 100,000: rate",
            "engine:maintained_with_large.rate",
            "engine:quiet_with_large.rate",
            0.85,
        ),
        Figure(
            "p99 with batches of 100,000",
            "engine:maintained_with_large.p99_ms",
            "engine:quiet_with_large.p99_ms",
            2.0,
        ),
    ),
)

MANIFEST = Group(
    (*named("manifest", "segments"), *named("many_partitions", "planning")),
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
            "many_partitions:planning.plan_ms",
            200.0,
            1.0,
        ),
        Figure("offset JSON of 10,000 partitions", "many_partitions:planning.offset_mb", 1.0, 1.0),
        Figure(
            "planning of one trigger over 10,000 partitions, all with backlog",
            "many_partitions:planning.trigger_ms",
            20.0,
            1.0,
        ),
    ),
)

AWAITED = Group(
    named("awaited", "plain", "awaited"),
    tuple(
        Figure(f"{text}, awaited / not", f"awaited.{metric}", f"plain.{metric}", target=1.0)
        for text, metric in (
            ("send_batch() of 1,000", "batch_rate"),
            ("send_arrow() of 10,000", "arrow_rate"),
            ("send_arrow() of 10,000, two in flight", "arrow_rate_by_two"),
            ("consume_arrow()", "read_rate"),
            ("receive() of 1,000 and ack", "receive_rate"),
            ("receive_arrow() and ack", "receive_arrow_rate"),
        )
    ),
)

GROUPS = {
    "produce": PRODUCE,
    "consume": CONSUME,
    "latency": LATENCY,
    "spark_read": SPARK_READ,
    "spark_read_large": SPARK_READ_LARGE,
    "spark_memory": SPARK_MEMORY,
    "spark_tables": SPARK_TABLES,
    "spark_stream": SPARK_STREAM,
    "spark_sink": SPARK_SINK,
    "group_commit": GROUP_COMMIT,
    "sharing": SHARING,
    "queues": QUEUES,
    "transactions": TRANSACTIONS,
    "bucket": BUCKET,
    "requests": REQUESTS,
    "engine": ENGINE,
    "upkeep": UPKEEP,
    "manifest": MANIFEST,
    "awaited": AWAITED,
}
