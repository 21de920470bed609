"""The data source `kmq`, as Spark sees it.

Spark starts a process that loads this module for each query, and for each batch that is written. To
keep that start short, readers and writers are imported by the methods that make them.
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

from kmq_storage.errors import InvalidRequestError, KmqError

if TYPE_CHECKING:
    from kmq_spark.datasource.options.source_options import SourceOptions
    from kmq_spark.datasource.sink.sink import Sink
    from kmq_storage.log.state.topic_state import Topic


class KmqDataSource(DataSource):
    """Topics of a kmq store as DataFrames: `spark.read.format("kmq")` and its three siblings.

    The store is named by `load(path)`, `save(path)`, `start(path)`, or by the option `path` or
    `store`.

    Options of a read are those of Spark's Kafka source. Exactly one of `subscribe`,
    `subscribePattern` and `assign` chooses topics. Others set where the read begins and ends (by
    offset or time), limits of tasks and of a stream's batches, the consumer `group`, and columns
    (docs/spark-reading.md). `table` reads the store's own state instead.

    Options of a write: `topic` (it wins over a column of that name) or `queue`; `txnAppId` and
    `txnVersion`, under which a batch is stored once. Columns: `value`, and optionally `key`,
    `topic`, `partition`, `headers`, `timestamp`, `properties`. A typed topic takes its own columns,
    and optionally `_topic`, `_key`, `_partition`, `_timestamp`, `_headers`, `_properties`. Other
    columns are ignored.

        spark.readStream.format("kmq").option("subscribe", "orders").load("data/shop")
        frame.write.format("kmq").mode("append").option("topic", "orders").save("data/shop")
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kmq"

    def schema(self) -> StructType:
        """Return the columns of a read; called at `load()`, so it refuses every wrong option."""
        from kmq_spark.datasource.columns.tables import table_spark_schema
        from kmq_spark.datasource.options.source_options import parse_source_options
        from kmq_spark.datasource.planning.view import columns_of_read

        options = parse_source_options(self.options)
        if options.table is not None:
            return table_spark_schema(options.table)
        return columns_of_read(_checked_topics(options), options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from kmq_spark.datasource.batch_reader import KmqBatchReader
        from kmq_spark.datasource.options.source_options import (
            parse_source_options,
            warn_of_stream_options,
        )
        from kmq_spark.datasource.planning.view import view_of

        options = parse_source_options(self.options)
        if options.table is not None:
            from kmq_spark.datasource.table_reader import KmqTableReader

            return KmqTableReader(options.url, options.table, schema)
        warn_of_stream_options(self.options)
        return KmqBatchReader(options, view_of(schema, _topics(options), options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query; its first call raises what is refused.

        Raised here, Spark would put an error of its own behind ours.
        """
        try:
            return self._stream_reader(schema)
        except KmqError as refusal:
            from kmq_spark.datasource.refused_stream import RefusedStream

            return RefusedStream(refusal)

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        from kmq_spark.datasource.options.source_options import check_stream, parse_source_options
        from kmq_spark.datasource.planning.view import view_of
        from kmq_spark.datasource.spark_versions import check_streaming_read

        check_streaming_read()
        # Older Sparks lack the classes that this module imports.
        from kmq_spark.datasource.stream_reader import KmqStreamReader

        options = parse_source_options(self.options)
        check_stream(options)
        return KmqStreamReader(options, view_of(schema, _topics(options), options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query."""
        from kmq_spark.datasource.writer import KmqBatchWriter

        return KmqBatchWriter(self._sink(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming query."""
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
    from kmq_spark.datasource.opening import open_log
    from kmq_spark.datasource.planning.coverage import cover

    return cover(open_log(options.url, read_only=True).refresh(), options).sorted_topics()


def _checked_topics(options: SourceOptions) -> list[Topic]:
    """The topics that a read covers now, after checks of its bounds and of its archive."""
    from kmq_spark.datasource.opening import open_log
    from kmq_spark.datasource.planning.coverage import cover
    from kmq_spark.datasource.planning.history import history_of

    log = open_log(options.url, read_only=True)
    state = log.refresh()
    covered = cover(state, options, history_of(log, state, options.archive))
    covered.check_bounds(options.starting, options.ending, whole=options.fail_on_data_loss)
    return covered.sorted_topics()
