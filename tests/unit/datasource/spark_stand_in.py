"""What `kmq.incremental` asks of a Spark session, without a JVM: a batch read and a batch write."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.types import StructType

from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.executor.writing import write_task
from kmq_spark.datasource.source import KmqDataSource
from kmq_spark.datasource.writer import KmqBatchWriter


class SparkStandIn:
    """A session."""

    @property
    def read(self) -> _Options:
        """The beginning of a read."""
        return _Options()

    def createDataFrame(self, _rows: list[object], _schema: str) -> None:
        """What makes a session the active one of a thread."""


class _Options:
    def __init__(self, frame: Frame | None = None) -> None:
        self._frame = frame
        self._given: dict[str, str] = {}

    def format(self, _name: str) -> Self:
        return self

    def mode(self, _name: str) -> Self:
        return self

    def option(self, name: str, value: str) -> Self:
        self._given[name] = value
        return self

    def options(self, **given: str) -> Self:
        self._given |= given
        return self

    def load(self, url: str) -> Frame:
        source = KmqDataSource({**self._given, "path": url})
        schema = source.schema()
        return Frame(source, schema, schema.names)

    def save(self, url: str) -> None:
        assert self._frame is not None, "a DataFrame is what is saved"
        source = KmqDataSource({**self._given, "path": url})
        writer = source.writer(self._frame.schema, overwrite=False)
        assert isinstance(writer, KmqBatchWriter)
        message = write_task(writer._sink, self._frame.batches(), task=0)
        pickle.loads(pickle.dumps(writer)).commit([pickle.loads(pickle.dumps(message))])


class Frame:
    """A DataFrame of some columns."""

    def __init__(self, source: KmqDataSource, whole: StructType, columns: list[str]) -> None:
        self._source = source
        self._whole = whole
        self.schema = StructType([whole[name] for name in columns])

    def select(self, *columns: str) -> Frame:
        """These columns only."""
        return Frame(self._source, self._whole, list(columns))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, task by task."""
        reader = self._source.reader(self._whole)
        assert isinstance(reader, KmqBatchReader)
        for task in reader.partitions():
            yield from (batch.select(self.schema.names) for batch in reader.read(task))

    @property
    def write(self) -> Any:
        """The beginning of a write."""
        return _Options(self)
