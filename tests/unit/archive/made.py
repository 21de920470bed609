"""Archives made by delta-rs and by Arrow, as Spark would leave them, without Spark."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from deltalake import write_deltalake

from kmq_spark.lake.batches import finish_batch
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import DELTA, ArchiveRecord, ArchiveRecords

STORE, ORDERS = uuid.UUID(int=1), uuid.UUID(int=7)
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def minute(number: int) -> datetime:
    """So many minutes after the first record."""
    return BEGUN + timedelta(minutes=number)


def records(
    partition: int, offsets: range, *, topic: str = "orders", topic_id: uuid.UUID = ORDERS
) -> pa.Table:
    """Records of one partition, a minute from each to the next."""
    count = len(offsets)
    return pa.table(
        {
            "topic": [topic] * count,
            "day": pa.array([date(2026, 1, 1)] * count),
            "topicId": [topic_id.hex] * count,
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([minute(n) for n in offsets], pa.timestamp("us", "UTC")),
            "value": [f"{partition}/{n}".encode() for n in offsets],
        }
    )


def archive(path: Path, file_format: str, *batches: pa.Table) -> str:
    """An archive whose job wrote these batches."""
    record = ArchiveRecord(
        store_id=str(STORE),
        format=file_format,
        group="archive-1",
        checkpoint="c" * 32,
        topics=("orders",),
        typed=False,
    )
    ArchiveRecords(ArchivePlace(str(path))).add(record)
    for number, batch in enumerate(batches):
        if file_format == DELTA:
            write_deltalake(path, batch, mode="append", partition_by=["topic", "day"])
        else:
            folder = path / f"batch=cccccccc-{number:010d}"
            pyarrow.parquet.write_to_dataset(batch, folder, partition_cols=["topic", "day"])
            finish_batch(ArchivePlace(str(path)), folder.name, lambda: False)
    return str(path)


def upload(folder: Path, place: ArchivePlace) -> None:
    """Have the same archive at another place."""
    system, root = place.file_system()
    for file in folder.rglob("*"):
        if file.is_file():
            system.pipe_file(f"{root}/{file.relative_to(folder)}", file.read_bytes())
