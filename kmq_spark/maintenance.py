"""Maintenance as a Spark job: partitions are sealed and compacted in parallel on executors.

Every executor commits for itself, as any process may; trimming, the checkpoint and collection
are the driver's. Works under Spark Connect, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kmq_spark.client.arguments import checked_seconds
from kmq_spark.client.opening import open_store
from kmq_spark.datasource.store_url import StoreUrl, storage_options
from kmq_storage import limits
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.maintain import begin, finish, tidy
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


def maintain(
    spark: SparkSession,
    url: str | os.PathLike[str],
    *,
    seal_after: float = limits.SEAL_AFTER,
    grace: float = limits.COLLECT_GRACE,
    storage_options: Mapping[str, Any] | None = None,
) -> MaintainReport:
    """Do what is due in a store that the executors reach: a bucket, or a folder on their host.

    Records that fill no segment are sealed when they are older than `seal_after` seconds;
    `grace` as in `Store.collect`, `storage_options` as in `kmq.open`.
    """
    grace = checked_seconds("grace", grace)
    seal_after = checked_seconds("seal_after", seal_after)
    url = os.fspath(url)
    given = storage_options or {}
    with open_store(url, create=False, maintenance=False, storage_options=given) as store:
        trimmed = begin(store.log)
        reached = StoreUrl(store.url, given)
        sealed, compacted = _on_executors(spark, reached, _partitions(store.log), seal_after)
        laid_out = bool(trimmed.starts or sealed.segments or compacted.after)
        written, collected = finish(store.log, laid_out=laid_out, grace=grace)
    return MaintainReport(trimmed, sealed, compacted, written, collected)


def _partitions(log: CommitLog) -> list[tuple[str, int]]:
    return [(topic.name, number) for topic, number in partitions_of(log.refresh())]


def _on_executors(
    spark: SparkSession, url: str, partitions: list[tuple[str, int]], seal_after: float
) -> tuple[SealReport, CompactReport]:
    if not partitions:
        return SealReport(), CompactReport()

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        if numbers:
            yield _reports(url, [partitions[number] for number in numbers], seal_after)

    count = len(partitions)
    rows = spark.range(0, count, 1, count).mapInArrow(work, "report string").collect()
    reports = [json.loads(row.report) for row in rows]
    return (
        all_sealed(SealReport(**sealed) for sealed, _ in reports),
        all_compacted(CompactReport(**compacted) for _, compacted in reports),
    )


def _reports(url: str, partitions: list[tuple[str, int]], seal_after: float) -> pa.RecordBatch:
    """On an executor: do what is due in these partitions."""
    given = storage_options(url)
    with open_store(url, create=False, maintenance=False, storage_options=given) as store:
        done = [tidy(store.log, only, seal_after=seal_after) for only in partitions]
    texts = [json.dumps([asdict(sealed), asdict(compacted)]) for sealed, compacted in done]
    return pa.record_batch([pa.array(texts, pa.string())], ["report"])
