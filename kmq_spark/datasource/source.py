"""The data source `kmq`, as Spark sees it.

Spark starts a process for a query that loads this module: readers of tables, readers of streams
and writers are loaded where they are made, so that a query waits for none but its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.columns.tables import table_spark_schema
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options.source_options import (
    SourceOptions,
    check_stream,
    parse_source_options,
    warn_of_stream_options,
)
from kmq_spark.datasource.planning.coverage import cover
from kmq_spark.datasource.planning.view import columns_of_read, view_of
from kmq_spark.datasource.refused_stream import RefusedStream
from kmq_spark.datasource.spark_versions import check_streaming_read
from kmq_storage.errors import InvalidRequestError, KmqError
from kmq_storage.log.topic_state import Topic

if TYPE_CHECKING:
    from kmq_spark.datasource.sink.sink import Sink


class KmqDataSource(DataSource):
    """Topics of a kmq store as DataFrames: `spark.read.format("kmq")` and its three siblings.

    Where: `load(path)`, `save(path)`, `start(path)`, or option `path` or `store`.

    Options of a read, as Spark's Kafka source has them: exactly one of `subscribe`,
    `subscribePattern`, `assign`; where it begins and ends by offset or time; limits of tasks and,
    for a stream, of batches; `group`, the consumer group; which columns (docs/spark-reading.md).
    Or `table`, the store's own state.

    Options of a write: `topic`, which goes before a column of that name, or `queue`; `txnAppId`
    and `txnVersion`, under which a batch is stored once. Columns: value, and where wanted key,
    topic, partition, headers, timestamp, properties; of a typed topic its own, and _topic, _key,
    _partition, _timestamp, _headers, _properties. Others are ignored.

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
        if options.table is not None:
            return table_spark_schema(options.table)
        return columns_of_read(_topics(options), options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        options = parse_source_options(self.options)
        if options.table is not None:
            from kmq_spark.datasource.table_reader import KmqTableReader

            return KmqTableReader(options.url, options.table, schema)
        warn_of_stream_options(self.options)
        return KmqBatchReader(options, view_of(schema, _topics(options), options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query; what is refused, its first call raises.

        Here Spark would put an error of its own behind ours.
        """
        try:
            return self._stream_reader(schema)
        except KmqError as refusal:
            return RefusedStream(refusal)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        check_streaming_read()
        # What it is built on came with 4.2.
        from kmq_spark.datasource.stream_reader import KmqStreamReader

        options = parse_source_options(self.options)
        check_stream(options)
        return KmqStreamReader(options, view_of(schema, _topics(options), options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch query."""
        from kmq_spark.datasource.writer import KmqBatchWriter

        return KmqBatchWriter(self._sink(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query."""
        from kmq_spark.datasource.writer import KmqStreamWriter

        sink = self._sink(schema, overwrite)
        if sink.batch is not None:
            raise InvalidRequestError(
                "options 'txnAppId' and 'txnVersion' are for batch writes (in foreachBatch, too): "
                "a stream's batches are written once without them",
                option="txnAppId",
            )
        return KmqStreamWriter(sink)

    def _sink(self, schema: StructType, overwrite: bool) -> Sink:
        from kmq_spark.datasource.options.sink_options import parse_sink_options
        from kmq_spark.datasource.sink.sink import open_sink

        options = parse_sink_options(self.options)
        if overwrite:
            raise InvalidRequestError(
                "a log is only appended to: use mode('append') for a batch, and "
                "outputMode('append') for a stream, not 'overwrite' or 'complete'"
            )
        sink = open_sink(options)
        sink.check_columns(schema)
        return sink


def _topics(options: SourceOptions) -> list[Topic]:
    """The topics that a read covers now."""
    covered = cover(open_log(options.url, read_only=True).refresh(), options)
    return [topic for _, topic in sorted(covered.topics.items())]
