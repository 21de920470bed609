"""The state of a store with very many segments as DataFrames."""

from __future__ import annotations

import statistics

from benchmarks import spark_session
from benchmarks.cases.manifest import stored_segments
from benchmarks.clock import stopwatch
from benchmarks.job import PARTITIONS, Job, Measure, Sample

_TIMES = 3


def tables(job: Job) -> Measure:
    """As many segments as `records` says, a million by default; the rows of a table are counted."""
    path = str(stored_segments(job, job.sizes.records, PARTITIONS))
    session = spark_session.start(job)
    reader = session.read.format("kmq")
    rows = {"segments": job.sizes.records, "partitions": PARTITIONS, "topics": 1}

    def took_ms(table: str) -> float:
        with stopwatch() as watch:
            # Every column, which a count alone would leave out.
            reader.option("table", table).load(path).write.format("noop").mode("overwrite").save()
        return watch.seconds * 1e3

    def measure() -> Sample:
        for table, count in rows.items():
            found = reader.option("table", table).load(path).count()
            if found != count:
                raise RuntimeError(f"table {table!r} has {found} rows of {count}")
        return {
            f"{table}_ms": statistics.median(took_ms(table) for _ in range(_TIMES))
            for table in rows
        }

    return measure
