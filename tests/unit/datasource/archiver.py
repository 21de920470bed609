"""A stand-in for the job of an archive: its steps, without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from deltalake import write_deltalake

from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.lake.batches import batch_folder, finish_batch
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import DELTA, ArchiveRecord, ArchiveRecords
from tests.spark.shop import Shop
from tests.unit.datasource.engine import batch_reader

GROUP = "archive-1"


class Archiver:
    """Does what the job does, in steps that a test can stop between."""

    def __init__(
        self, shop: Shop, path: Path, name: str = "orders", file_format: str = DELTA
    ) -> None:
        self.shop, self.path, self._name = shop, path, name
        topic = shop.store.describe_topic(name)
        self._written = dict.fromkeys(range(topic.partitions), 0)
        self._topic = topic.topic_id
        identity = shop.store.log.identity
        self._batches = 0
        self._record = record = ArchiveRecord(
            store_id=str(identity.store_id),
            format=file_format,
            group=GROUP,
            checkpoint="c" * 32,
            topics=(name,),
            typed=False,
            starts={self._topic.hex: {}},
        )
        ArchiveRecords(ArchivePlace(str(path))).add(record)

    def begin(self, offset: int) -> None:
        """The log was trimmed up to there before the job first ran."""
        self._written = {0: offset, 1: offset}
        self.shop.store.trim(self._name, self._written)
        records = ArchiveRecords(ArchivePlace(str(self.path)))
        record = records.newest()
        assert record is not None
        records.add(replace(record, starts={self._topic.hex: self._written}))

    def lose(self, partition: int, start: int, end: int) -> None:
        """The job was told to go on over lost records, and noted which."""
        records = ArchiveRecords(ArchivePlace(str(self.path)))
        record = records.newest()
        assert record is not None
        records.add(record.with_hole(self._topic, partition, (start, end)))

    def write(self) -> None:
        """A batch of all that is new becomes part of the table."""
        rows = self.shop.store.read(self._name, start=self._written).read_all()
        columns = {name: rows[name] for name in ("topic", "partition", "offset", "timestamp")}
        columns |= {name: rows[name] for name in ("key", "value")}
        columns["topicId"] = pa.array([self._topic.hex] * rows.num_rows)
        columns["day"] = pa.array([date(2026, 1, 1)] * rows.num_rows)
        by, table = ["topic", "day"], pa.table(columns)
        if self._record.format == DELTA:
            write_deltalake(self.path, table, mode="append", partition_by=by)
        else:
            folder = batch_folder(self._record, self._batches)
            pyarrow.parquet.write_to_dataset(table, self.path / folder, partition_cols=by)
            finish_batch(ArchivePlace(str(self.path)), folder, lambda: not table.num_rows)
        self._batches += 1
        self._written = {p: end for p, (_, end) in self.shop.store.offsets(self._name).items()}

    def finish(self, number: int) -> None:
        """Spark notes in the checkpoint of the job that a batch is finished."""
        commits = self.path / "_kmq" / self._record.checkpoint / "commits"
        commits.mkdir(parents=True, exist_ok=True)
        (commits / str(number)).touch()

    def commit(self) -> None:
        """The group follows."""
        self.shop.commit(GROUP, self._name, self._written)

    def trim(self) -> None:
        """The log gives up what the group has passed."""
        self.shop.store.trim(self._name, self.shop.committed(GROUP, self._name))

    def run(self) -> None:
        """All of it."""
        self.write()
        self.commit()
        self.trim()


def options_of(archiver: Archiver, **more: str) -> dict[str, str]:
    """Those of a read over its archive and the log."""
    return {
        "path": archiver.shop.url,
        "subscribe": "orders",
        "archive": str(archiver.path),
        **more,
    }


def reader_of(archiver: Archiver, **more: str) -> KmqBatchReader:
    """A batch read over both."""
    return batch_reader(options_of(archiver, **more))
