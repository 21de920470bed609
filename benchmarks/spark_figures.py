"""What is measured of the Spark connector."""

from __future__ import annotations

from benchmarks.group import Figure, Group, named

SPARK_READ = Group(
    named("spark_read", "kmq", "kafka", "delta", "limit", "kmq_sent", "kmq_typed", "limit_typed"),
    (
        Figure("batch read / Kafka", "kmq.rate", "kafka.rate"),
        Figure("batch read / Kafka tuned", "kmq.rate", "kafka.tuned_rate", 2.5),
        Figure("batch read / limit", "kmq.rate", "limit.rate", 0.95),
        Figure("batch read / Delta", "kmq.rate", "delta.rate", 1.0),
        Figure("count and sum / Kafka tuned", "kmq.sum_rate", "kafka.tuned_sum_rate", 2.5),
        Figure("count and sum / limit", "kmq.sum_rate", "limit.sum_rate", 0.95),
        Figure("count and sum / Delta", "kmq.sum_rate", "delta.sum_rate", 1.0),
        Figure("batch read of a topic written by send() / limit", "kmq_sent.rate", "limit.rate"),
        Figure("typed topic, 2 of 20 columns / all", "kmq_typed.two_rate", "kmq_typed.rate", 5.0),
        Figure("2 of 20 columns / all, the limit", "limit_typed.two_rate", "limit_typed.rate"),
        Figure(
            "2 of 20 columns of a typed topic / limit", "kmq_typed.two_rate", "limit_typed.two_rate"
        ),
    ),
    spark=True,
)

SPARK_READ_LARGE = Group(
    named("spark_read_large", "kmq", "kafka", "delta", "limit"),
    (
        Figure("batch read / Kafka tuned", "kmq.rate", "kafka.rate", 2.5),
        Figure("batch read / limit", "kmq.rate", "limit.rate", 0.95),
        Figure("batch read / Delta", "kmq.rate", "delta.rate", 1.0),
        Figure("count and sum / Kafka tuned", "kmq.sum_rate", "kafka.sum_rate", 2.5),
        Figure("count and sum / limit", "kmq.sum_rate", "limit.sum_rate", 0.95),
        Figure("count and sum / Delta", "kmq.sum_rate", "delta.sum_rate", 1.0),
    ),
    spark=True,
    by_name=True,
)

SPARK_MEMORY = Group(
    named("spark_memory", "workers"),
    (
        Figure("peak of a Python worker that reads all of it", "workers.whole_mb", 300.0, 1.0),
        Figure("the same, all of it / half of it", "workers.whole_mb", "workers.half_mb", 1.1),
    ),
    spark=True,
    by_name=True,
)

SPARK_TABLES = Group(
    named("spark_tables", "tables"),
    (
        Figure("every segment of a million, as a DataFrame", "tables.segments_ms", 5_000.0, 1.0),
        Figure("the partitions of such a store", "tables.partitions_ms", 1_000.0, 1.0),
        Figure("the topics of such a store", "tables.topics_ms", 1_000.0, 1.0),
    ),
    spark=True,
    by_name=True,
)

SPARK_STREAM = Group(
    (*named("spark_stream", "kmq", "kafka", "delta", "limit"), "spark_driver:own_share"),
    (
        Figure(
            "availableNow in 4 batches / limit",
            "kmq.available_now_rate",
            "limit.available_now_rate",
            0.95,
            0.97,
        ),
        Figure(
            "availableNow in 4 batches / Kafka",
            "kmq.available_now_rate",
            "kafka.available_now_rate",
        ),
        Figure("trickle, median batch / limit", "kmq.batch_ms", "limit.batch_ms", 1.1),
        Figure("trickle, median batch / Kafka", "kmq.batch_ms", "kafka.batch_ms", 1.0),
        Figure("trickle, median batch / Delta", "kmq.batch_ms", "delta.batch_ms"),
        Figure("trickle, end to end p50 / limit", "kmq.p50_ms", "limit.p50_ms", 1.1),
        Figure("trickle, end to end p50 / Kafka", "kmq.p50_ms", "kafka.p50_ms", None, 1.0),
        Figure("trickle, end to end p50 / Delta", "kmq.p50_ms", "delta.p50_ms"),
        Figure(
            "trickle, kmq's share of the driver's work",
            "spark_driver:own_share.driver_ms",
            10.0,
            1.0,
        ),
    ),
    spark=True,
)

SPARK_SINK = Group(
    named(
        "spark_sink",
        "kmq",
        "kafka",
        "delta",
        "limit",
        "rows_only",
        "kmq_stream",
        "kafka_stream",
        "delta_stream",
        "limit_stream",
        "driver_commit",
    ),
    (
        Figure("batch sink, exactly once / Kafka, at least once", "kmq.rate", "kafka.rate"),
        Figure("batch sink, exactly once / Kafka tuned", "kmq.rate", "kafka.tuned_rate", 1.8),
        Figure("batch sink / Delta", "kmq.rate", "delta.rate", 1.3),
        Figure("batch sink / limit", "kmq.rate", "limit.rate"),
        Figure("batch sink / making the rows only", "kmq.rate", "rows_only.rate"),
        Figure(
            "stream from kmq to kmq, exactly once / Kafka to Kafka, at least once",
            "kmq_stream.rate",
            "kafka_stream.rate",
            3.0,
        ),
        Figure(
            "stream from kmq to kmq, two columns read / Kafka to Kafka tuned",
            "kmq_stream.tuned_rate",
            "kafka_stream.tuned_rate",
        ),
        Figure("stream from kmq to kmq / limit", "kmq_stream.rate", "limit_stream.rate"),
        Figure(
            "stream from ready-made batches to files (the limit) / Kafka to Kafka",
            "limit_stream.rate",
            "kafka_stream.rate",
        ),
        Figure(
            "stream from kmq to kmq / Delta to Delta",
            "kmq_stream.rate",
            "delta_stream.rate",
            1.3,
        ),
        Figure("the driver's commit of 1,000 files", "driver_commit.commit_ms", 50.0, target=1.0),
        Figure("bytes of it for each", "driver_commit.bytes_a_file_times", 100.0, target=1.0),
    ),
    spark=True,
)
