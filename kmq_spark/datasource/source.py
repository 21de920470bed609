"""The data source `kmq`, as Spark sees it."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.coverage import cover
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options import SourceOptions, parse_sink_options, parse_source_options
from kmq_spark.datasource.schema import spark_schema
from kmq_spark.datasource.sink import Sink, open_sink
from kmq_spark.datasource.sink_columns import check_sink_columns
from kmq_spark.datasource.stream_reader import KmqStreamReader
from kmq_spark.datasource.writer import KmqBatchWriter, KmqStreamWriter
from kmq_storage.errors import InvalidRequestError


class KmqDataSource(DataSource):
    """Topics of a kmq store as DataFrames: `spark.read.format("kmq")` and its three siblings.

    Where: `load(path)`, `save(path)`, `start(path)`, or option `path` or `store`.

    Options of a read, as Spark's Kafka source has them: exactly one of `subscribe`,
    `subscribePattern`, `assign`; `startingOffsets` (earliest for a batch, latest for a stream),
    `endingOffsets` (batch), `maxOffsetsPerTrigger` (stream), `minPartitions`, `includeHeaders`,
    `failOnDataLoss`. `group` names the consumer group: a stream without a checkpoint begins at
    its offsets and commits every finished batch to it; a batch begins there with
    `startingOffsets=group`. Columns: key, value, topic, partition, offset, timestamp,
    timestampType, and headers if they are included.

    Options of a write: `topic`, which goes before a column of that name. Columns: value, and
    where wanted key, topic, partition, headers, timestamp; others are ignored.

        spark.readStream.format("kmq").option("subscribe", "orders").load("data/shop")
        frame.write.format("kmq").mode("append").option("topic", "orders").save("data/shop")
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kmq"

    def schema(self) -> StructType:
        """The columns of a read; called at load(), so everything that can be wrong is refused."""
        options = parse_source_options(self.options)
        cover(open_log(options.url, read_only=True).refresh(), options)
        return spark_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        return KmqBatchReader(self._source_options(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query."""
        options = self._source_options(schema)
        if options.ending is not None:
            raise InvalidRequestError(
                "option 'endingOffsets' is for batch reads; a stream has no end",
                option="endingOffsets",
            )
        return KmqStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch query."""
        return KmqBatchWriter(self._sink(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query."""
        return KmqStreamWriter(self._sink(schema, overwrite))

    def _sink(self, schema: StructType, overwrite: bool) -> Sink:
        options = parse_sink_options(self.options)
        if overwrite:
            raise InvalidRequestError(
                "a log is only appended to: use mode('append') for a batch, and "
                "outputMode('append') for a stream, not 'overwrite' or 'complete'"
            )
        check_sink_columns(schema, topic=options.topic)
        return open_sink(options)

    def _source_options(self, schema: StructType) -> SourceOptions:
        options = parse_source_options(self.options)
        fixed = spark_schema(include_headers=options.include_headers)
        if schema.simpleString() != fixed.simpleString():
            raise InvalidRequestError(
                "the columns of a kmq read are fixed and can't be set: remove schema(...)"
            )
        return options
