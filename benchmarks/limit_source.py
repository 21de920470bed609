"""The limit: a Python data source that hands out ready-made Arrow batches and does nothing else.

No offsets of records, no groups, no checksums, no recovery: whatever a log in Python does comes on
top.
"""

# ruff: noqa: N802, N803 (Spark names these methods, and what they take)

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from benchmarks import dataset
from benchmarks.job import CORES, KEY_BYTES, PARTITIONS, VALUE_BYTES, Job

# The columns of Spark's Kafka source, which are those of kmq's.
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
BATCHES = 8  # of each partition
TYPED_ROWS = 50_000  # of a batch


def write_batches(job: Job, rows: int, *, times: int = 1) -> Path:
    """A file per partition, of batches with every column; all of them so many times."""
    folder = job.path("limit", "made").parent
    batch_rows = rows // PARTITIONS // BATCHES
    pairs = dataset.arrow_batches(rows, batch_rows)
    for partition in range(PARTITIONS):
        path = str(folder / f"{partition}.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, ARROW) as writer:
            for number in list(range(BATCHES)) * times:
                pair = pairs[partition * BATCHES + number]
                writer.write_batch(whole(pair, partition, number * batch_rows))
    return folder


def write_typed_batches(job: Job, rows: int) -> Path:
    """A file per partition, of the batches that typed topics are measured with."""
    folder, batch = job.path("limit", "typed", "made").parent, dataset.typed_batch(TYPED_ROWS)
    for partition in range(PARTITIONS):
        path = str(folder / f"{partition}.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            for _ in range(rows // PARTITIONS // TYPED_ROWS):
                writer.write_batch(batch)
    return folder


def whole(pair: pa.RecordBatch, partition: int, first: int) -> pa.RecordBatch:
    """A batch of keys and values with the other columns beside them."""
    rows = pair.num_rows
    columns = [
        pair["key"],
        pair["value"],
        pa.repeat(pa.scalar("records"), rows),
        pa.repeat(pa.scalar(partition, pa.int32()), rows),
        pc.cast(pa.array(range(first, first + rows)), pa.int64()),
        pa.repeat(pa.scalar(0, ARROW.field("timestamp").type), rows),
        pa.repeat(pa.scalar(0, pa.int32()), rows),
    ]
    return pa.record_batch(columns, schema=ARROW)


class Slice(InputPartition):
    """A run of batches, the same of each file."""

    def __init__(self, paths: Sequence[str], start: int, end: int) -> None:
        self.paths, self.start, self.end = paths, start, end


def _slices(folder: str, start: int, end: int) -> list[Slice]:
    """A task per core: more would only cost."""
    paths = [f"{folder}/{number}.arrow" for number in range(PARTITIONS)]
    return [Slice(paths[core::CORES], start, end) for core in range(CORES)]


def _mapped(part: Slice, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for path in part.paths:
        with pa.memory_map(path) as file:
            batches = pa.ipc.open_file(file)
            for number in range(part.start, part.end):
                yield batches.get_batch(number).select(columns)


class Batches(DataSourceReader):
    """Every batch of every file, of it some columns."""

    def __init__(self, folder: str, columns: list[str]) -> None:
        self.folder, self.columns = folder, columns

    def partitions(self) -> Sequence[InputPartition]:
        """A task per core."""
        with pa.memory_map(f"{self.folder}/0.arrow") as file:
            return _slices(self.folder, 0, pa.ipc.open_file(file).num_record_batches)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The mapped batches as they are."""
        assert isinstance(partition, Slice)
        return _mapped(partition, self.columns)


class StreamOfBatches(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same files as a stream; an offset counts batches."""

    def __init__(self, folder: str, rows: int) -> None:
        self.folder, self.limit = folder, rows

    def initialOffset(self) -> dict[str, int]:
        """Before the first."""
        return {"batch": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """The end never moves."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many rows a batch as asked for."""
        return ReadMaxRows(self.limit)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """A quarter further, up to the end."""
        step = BATCHES // 4 if isinstance(limit, ReadMaxRows) else BATCHES
        return {"batch": min(BATCHES, start["batch"] + step)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """A task per core."""
        if start == end:
            return []
        return _slices(self.folder, start["batch"], end["batch"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The mapped batches as they are."""
        assert isinstance(partition, Slice)
        return _mapped(partition, ARROW.names)


class StreamOfBytes(DataSourceStreamReader):
    """A growing file of values of one width; an offset counts values."""

    def __init__(self, path: str) -> None:
        self.path = path

    def initialOffset(self) -> dict[str, int]:
        """The beginning of the file."""
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The end of the file."""
        del start, limit
        return {"row": os.path.getsize(self.path) // VALUE_BYTES}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One task: there is never much."""
        return [] if start == end else [Slice([self.path], start["row"], end["row"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One batch, made over the bytes as they were read."""
        assert isinstance(partition, Slice)
        rows = partition.end - partition.start
        with open(partition.paths[0], "rb") as file:
            file.seek(partition.start * VALUE_BYTES)
            values = pa.py_buffer(file.read(rows * VALUE_BYTES))
        keys = pa.py_buffer(bytes(rows * KEY_BYTES))
        pair = pa.record_batch(
            [
                dataset.binary_column(keys, rows, KEY_BYTES),
                dataset.binary_column(values, rows, VALUE_BYTES),
            ],
            names=["key", "value"],
        )
        yield whole(pair, 0, partition.start)


class Files(DataSourceArrowWriter):
    """Each task's batches as they come, in a file that is on the disk when the task ends."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The batches of one task."""
        return _written(self.folder, iterator)


class StreamOfFiles(DataSourceStreamArrowWriter):
    """The same for each batch of a stream; a batch that is replayed is there twice."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The batches of one task."""
        return _written(self.folder, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The files are there."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """They stay."""


def _written(folder: str, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    first = next(batches)
    with open(os.path.join(folder, uuid.uuid4().hex), "wb") as file:
        with pa.ipc.new_file(file, first.schema) as writer:
            for batch in itertools.chain([first], batches):
                writer.write_batch(batch)
        file.flush()
        os.fdatasync(file.fileno())
    return WriterCommitMessage()


class LimitSource(DataSource):
    """`format("limit")` with a path: a folder of batches, or a file of values for the trickle."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "limit"

    def schema(self) -> str:
        """The columns of Spark's Kafka source, or those that are named with their types."""
        return self.options.get("columns", COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batches, once."""
        return Batches(self.options["path"], schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A file for each task."""
        del schema, overwrite
        return Files(self.options["path"])

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A file for each task of each batch."""
        del schema, overwrite
        return StreamOfFiles(self.options["path"])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The batches, or the growing file, as a stream."""
        del schema
        path = self.options["path"]
        if os.path.isfile(path):
            return StreamOfBytes(path)
        return StreamOfBatches(path, int(self.options["rows"]))
