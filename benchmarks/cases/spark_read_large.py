"""The same batch reads of ten times as many records."""

from __future__ import annotations

from benchmarks.cases import spark_read
from benchmarks.job import Job, Measure

_TIMES = 10


def kmq(job: Job) -> Measure:
    """kmq."""
    return spark_read.kmq(job, _TIMES)


def kafka(job: Job) -> Measure:
    """The Kafka connector, tuned."""
    return spark_read.kafka_tuned(job, _TIMES)


def delta(job: Job) -> Measure:
    """Delta."""
    return spark_read.delta(job, _TIMES)


def limit(job: Job) -> Measure:
    """Ready-made Arrow batches."""
    return spark_read.limit(job, _TIMES)
