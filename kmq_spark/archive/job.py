"""The job that archives topics: a streaming query whose batches go to Delta or to Parquet.

A batch is written under its number, so a batch that runs again changes nothing. The archive's group
follows the batches that are durable: the log below its offsets may be trimmed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kmq_spark.archive.beginning import begin
from kmq_spark.archive.checkpoint import Checkpoint
from kmq_spark.archive.holes import lost_records, note_holes
from kmq_spark.archive.reach import check_reachable
from kmq_spark.archive.trimming import check_held, trim_archived
from kmq_spark.archive.wider import allow_wider, warn_of_wider
from kmq_spark.client.handles.arguments import checked_seconds
from kmq_spark.client.opening import open_store
from kmq_spark.datasource.groups.listener import follow
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.spark_versions import check_streaming_read
from kmq_spark.datasource.store_url import StoreUrl, as_options, beside, storage_options
from kmq_spark.lake.batches import batch_folder, finish_batch, is_finished
from kmq_spark.lake.columns import columns_of
from kmq_spark.lake.files import check_readable
from kmq_spark.lake.places import ArchivePlace, fixed
from kmq_spark.lake.record import DELTA, FOLDER, PARQUET, ArchiveRecord, ArchiveRecords
from kmq_storage.errors import IllegalStateError
from kmq_storage.groups.administration import Offsets
from kmq_storage.log.state.store_state import StoreState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_DAY_US = 86_400_000_000

#: Settings of the session that writes: Spark's own INT96 has no statistics, so no reader could skip
#: files by time, and "LEGACY" writes days before 1582 as others than they are.
_EXACT = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


@dataclass(frozen=True)
class ArchiveReport:
    """How far an archive is: the next offset to archive, and where trimmed partitions begin."""

    archived: Offsets
    trimmed: Offsets = field(default_factory=dict)
    #: Records that were gone before they were archived, in this run.
    lost: int = 0


def run(
    spark: SparkSession,
    url: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    topics: Sequence[str] = (),
    file_format: str | None = None,
    keep: float | None = None,
    fail_on_data_loss: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> ArchiveReport:
    """Archive what the topics hold now, then return.

    Args:
        spark: The session that does the work.
        url: The store.
        path: The archive: a folder or URL that Spark can write to.
        topics: All untyped, or all typed with one schema. By default the topics of the archive so
            far; fewer than these are refused.
        file_format: "delta" or "parquet". By default the format that the archive has; for a new one
            Delta where the session knows it.
        keep: Trim archived records from the log once they are older than this many seconds. None
            trims nothing. DataLossError when a Delta table no longer has what is archived.
        fail_on_data_loss: Stop when records were gone before they were archived (trimmed, or
            deleted with a topic that was made again). False: count them, note for later reads what
            was lost, and continue with what is there, also with fewer topics.
        storage_options: Of the store, as for `kmq.open`.
    """
    keep = None if keep is None else checked_seconds("keep", keep)
    place = _place(beside(fixed(path), os.fspath(url), storage_options or {}))
    if keep is not None:
        _check_trimmable(spark, place, file_format)
    known = lost_records(place)
    query = start(
        spark,
        url,
        path,
        topics=topics,
        file_format=file_format,
        trigger={"availableNow": True},
        fail_on_data_loss=fail_on_data_loss,
        storage_options=storage_options,
    )
    try:
        query.awaitTermination()
    except BaseException:  # after Ctrl-C, nobody would know that it still runs
        query.stop()
        raise
    place.sync()
    follow(query, storage_options)  # after the last batch, Spark tells the source nothing
    lost = max(0, *(now - was for now, was in zip(lost_records(place), known, strict=True)))
    with open_store(url, create=False, storage_options=storage_options) as store:
        group = query.name
        if keep is not None:
            _check_trimmable(spark, place, file_format)
            if fail_on_data_loss:
                check_held(store.log, place)
        trimmed = {} if keep is None else trim_archived(store, group, keep)
        return ArchiveReport(store.describe_group(group).committed, trimmed, lost)


def _check_trimmable(spark: SparkSession, place: ArchivePlace, file_format: str | None) -> None:
    """InvalidRequestError for a Delta table that can't be read: nothing may be trimmed then."""
    record = ArchiveRecords(place).newest()
    found = record.format if record is not None else file_format or _format_of(spark)
    if found == DELTA:
        check_readable(place)


def start(
    spark: SparkSession,
    url: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    topics: Sequence[str] = (),
    file_format: str | None = None,
    trigger: dict[str, Any] | None = None,
    fail_on_data_loss: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Archive without end, as `run` does once; returns the streaming query.

    `trigger` is Spark's, by default every 10 seconds; other arguments as for `run`. The name of the
    query is the group of the archive. The query fails when a typed topic gets a column: start it
    again, and it continues with that column.

    Raises:
        InvalidRequestError: Spark has no file system for `path`.
        IllegalStateError: The checkpoint of the archive's job is lost. Nothing else tells what was
            written.
    """
    check_streaming_read()
    given = storage_options or {}
    path = beside(fixed(path), os.fspath(url), given)
    check_reachable(spark, path)
    with open_store(url, create=False, storage_options=given) as store:
        record = begin(
            store,
            path,
            topics,
            file_format,
            else_format=_format_of(spark),
            fail_on_data_loss=fail_on_data_loss,
            case_sensitive=_is_set(spark, "spark.sql.caseSensitive"),
            times_of_day=_is_set(spark, "spark.sql.timeType.enabled"),
        )
        state = store.log.state
        passed = state.group_offsets(record.group)
        Checkpoint(ArchiveRecords(_place(path)), record).finish_passed(passed)
        columns, source = columns_of(state, record), StoreUrl(store.url, given)
    frame = _records(spark, source, record, columns, fail_on_data_loss=fail_on_data_loss)
    if record.typed:  # once, as all batches of a run have the columns of its frame
        (allow_wider if record.format == DELTA else warn_of_wider)(frame, _place(path))
    writer = _writer(source, path, record, with_holes=not fail_on_data_loss)
    with _exact_times(spark):
        return (
            frame.writeStream.foreachBatch(writer)
            .queryName(record.group)
            .option("checkpointLocation", f"{path}/{FOLDER}/{record.checkpoint}")
            .trigger(**trigger or {"processingTime": "10 seconds"})
            .start()
        )


def _records(
    spark: SparkSession,
    source: StoreUrl,
    record: ArchiveRecord,
    columns: Sequence[str],
    *,
    fail_on_data_loss: bool,
) -> DataFrame:
    """The stream of what is to be archived."""
    return (
        spark.readStream.format("kmq")
        .option("subscribe", ",".join(record.topics))
        .option("group", record.group)
        .option("startingOffsets", "earliest")
        .option("columns", json.dumps(columns))
        .option("failOnDataLoss", fail_on_data_loss)
        .options(**as_options(source.storage_options))
        .load(str(source))
    )


def _is_set(spark: SparkSession, name: str) -> bool:
    return str(spark.conf.get(name, "false")).lower() == "true"


def _place(path: str) -> ArchivePlace:
    return ArchivePlace(path, storage_options(path))


def _writer(
    url: str, path: str, record: ArchiveRecord, *, with_holes: bool
) -> Callable[[DataFrame, int], None]:
    """Writes a batch of the store's; `with_holes` it first notes which records that lacks."""
    place = _place(path)
    write = _write_delta if record.format == DELTA else _write_parquet

    def write_batch(batch: DataFrame, number: int) -> None:
        log = open_log(url, read_only=True) if with_holes or record.typed else None
        if log is not None:
            _refuse_growth(log.refresh(), record, batch.columns)
        if record.format == PARQUET and is_finished(place, batch_folder(record, number)):
            return  # as Delta does by its number; the log may have lost some of it since
        place.sync()  # first Spark's plan of the batch: another one of its number would be ignored
        if log is not None and with_holes:
            note_holes(log, place, record, number)
        write(_laid_out(batch, record), place, record, number)

    return write_batch


def _refuse_growth(state: StoreState, record: ArchiveRecord, columns: Sequence[str]) -> None:
    """IllegalStateError when a typed topic got columns since: the job's frame has only these.

    The state must be no older than the one that the batch was planned in.
    """
    if not record.typed:
        return
    for topic in filter(None, map(state.find_topic, record.topics)):
        schema = topic.settings.schema
        new = [name for name in ([] if schema is None else schema.names) if name not in columns]
        if new:
            raise IllegalStateError(
                f"topic {topic.name} has got column {new[0]!r} since this job began, and this "
                "batch lacks it, so it was not archived: start the job again, and it continues "
                "with all columns",
                topic=topic.name,
                column=new[0],
            )


def _laid_out(batch: DataFrame, record: ArchiveRecord) -> DataFrame:
    """The batch with the day (UTC) of each record, in the order that files are pruned by."""
    from pyspark.sql import functions as F

    column, day = record.column, record.column("day")
    micros = F.unix_micros(column("timestamp"))
    # Spark divides as double, where only a multiple of a day is exact.
    days = (micros - F.pmod(micros, F.lit(_DAY_US))) / F.lit(_DAY_US)
    dated = batch.withColumn(day, F.date_from_unix_date(days.cast("int")))
    order = [column(name) for name in ("topic", "day", "partition", "offset")]
    return dated.sortWithinPartitions(*order)


def _write_delta(batch: DataFrame, place: ArchivePlace, record: ArchiveRecord, number: int) -> None:
    (
        batch.write.format(DELTA)
        .mode("append")
        .option("txnAppId", record.checkpoint)
        .option("txnVersion", number)
        .option("mergeSchema", "true")
        .option("delta.enableDeletionVectors", "false")  # readers go by the files alone
        .option("delta.columnMapping.mode", "none")
        .partitionBy(record.column("topic"), record.column("day"))
        .save(place.url)
    )
    place.sync()


def _write_parquet(
    batch: DataFrame, place: ArchivePlace, record: ArchiveRecord, number: int
) -> None:
    folder, (topic, day) = batch_folder(record, number), record.partitioned_by
    named = {record.column("topic"): topic, record.column("day"): day}
    (
        batch.withColumnsRenamed(named)
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "static")  # what an interrupted attempt left
        .partitionBy(topic, day)
        .parquet(f"{place.url}/{folder}")
    )
    place.sync()
    finish_batch(place, folder, batch.isEmpty)


@contextmanager
def _exact_times(spark: SparkSession) -> Iterator[None]:
    """Have files with the times and days that records have, whatever the session's settings."""
    before = {name: str(spark.conf.get(name)) for name in _EXACT}
    try:
        for name, value in _EXACT.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _format_of(spark: SparkSession) -> str:
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    return DELTA if "io.delta" in extensions else PARQUET
