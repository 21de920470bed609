"""Maintenance as a Spark job: executors seal and compact partitions in parallel.

Each executor commits for itself, as any process may. The driver trims, writes the checkpoint and
collects. It works under Spark Connect, too.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kmq_spark.client.handles.arguments import checked_seconds
from kmq_spark.client.opening import open_store
from kmq_spark.datasource.store_url import StoreUrl, storage_options
from kmq_storage import limits
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.damaged import Damaged
from kmq_storage.maintenance.last_look import LastLook
from kmq_storage.maintenance.maintain import begin, finish, tidy
from kmq_storage.maintenance.manner import Manner
from kmq_storage.maintenance.reports import (
    CompactReport,
    MaintainReport,
    SealReport,
    all_compacted,
    all_sealed,
)
from kmq_storage.maintenance.seal import partitions_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The most tasks of a job: each opens the store, which with many partitions takes most of the time.
_TASKS = 256


def maintain(
    spark: SparkSession,
    url: str | os.PathLike[str],
    *,
    seal_after: float = limits.SEAL_AFTER,
    grace: float = limits.COLLECT_GRACE,
    storage_options: Mapping[str, Any] | None = None,
) -> MaintainReport:
    """Do the maintenance that is due, as `Store.maintain` does, with the executors of Spark.

    Args:
        spark: The session.
        url: A store that the executors reach: in a bucket, or in a folder on their host.
        seal_after: Records that fill no segment are sealed once they are this many seconds old.
        grace: As for `Store.collect`, in seconds.
        storage_options: As for `kmq.open`.

    CorruptionError when records of a partition are damaged, after everything else was done.
    """
    grace = checked_seconds("grace", grace)
    seal_after = checked_seconds("seal_after", seal_after)
    url = os.fspath(url)
    given = storage_options or {}
    with open_store(url, create=False, maintenance=False, storage_options=given) as store:
        damaged = Damaged()
        trimmed = begin(store.log, apart=damaged.apart)
        reached = StoreUrl(store.url, given)
        reports = _on_executors(spark, reached, _partitions(store.log), seal_after)
        sealed = all_sealed(report.sealed for report in reports)
        compacted = all_compacted(report.compacted for report in reports)
        written, collected = finish(store.log, LastLook(), grace=grace)
    for each in (damaged, *(report.damaged for report in reports)):
        each.tell()
    return MaintainReport(trimmed, sealed, compacted, written, collected)


def _partitions(log: CommitLog) -> list[tuple[str, int]]:
    return [(topic.name, number) for topic, number in partitions_of(log.refresh())]


def _on_executors(
    spark: SparkSession, url: str, partitions: list[tuple[str, int]], seal_after: float
) -> list[_Report]:
    if not partitions:
        return []

    tasks = min(len(partitions), _TASKS)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        if numbers:
            # Partitions of one topic are alike: they go to different tasks.
            mine = [each for number in numbers for each in partitions[number::tasks]]
            yield _tidied(url, mine, seal_after)

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(work, "report binary").collect()
    return [pickle.loads(row.report) for row in rows]


@dataclass(frozen=True, slots=True)
class _Report:
    """What was done in a partition, on its way to the driver."""

    sealed: SealReport
    compacted: CompactReport
    damaged: Damaged


def _tidied(url: str, partitions: list[tuple[str, int]], seal_after: float) -> pa.RecordBatch:
    """On an executor: do what is due in these partitions."""
    given, done = storage_options(url), []
    with open_store(url, create=False, maintenance=False, storage_options=given) as store:
        for only in partitions:
            damaged = Damaged()
            reports = tidy(store.log, only, seal_after=seal_after, manner=Manner(damaged.apart))
            done.append(pickle.dumps(_Report(*reports, damaged)))
    return pa.record_batch([pa.array(done, pa.binary())], ["report"])
