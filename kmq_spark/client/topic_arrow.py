"""Arrow data as users have it, for topics of both kinds: a batch, a table or a reader.

What only typed topics need is loaded when there is one.
"""

from __future__ import annotations

import pyarrow as pa

from kmq_spark.client.arrow_extras import check_headers, check_properties
from kmq_spark.client.encoding import (
    check_arrow_columns,
    check_instants,
    check_partitions,
    in_stored_types,
    rows_of_arrow,
)
from kmq_spark.client.routing import Rows
from kmq_spark.client.typed_topics import checked_with_known, typed_columns
from kmq_spark.errors import InvalidRequestError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.topic_state import Topic


def batches_of(log: CommitLog, topic: str, data: object) -> list[pa.RecordBatch]:
    """The non-empty record batches of a RecordBatch, Table or RecordBatchReader.

    They are checked and in stored types as far as the topic is known. InvalidRequestError for
    what it doesn't take.
    """
    schema = _schema_of(data)
    checked_with_known(log, topic, lambda known: _check_schema(schema, known))
    batches = [batch for batch in _parts(data) if batch.num_rows]
    return checked_with_known(
        log, topic, lambda known: [_checked(batch, known) for batch in batches]
    )


def _schema_of(data: object) -> pa.Schema:
    if isinstance(data, pa.RecordBatch | pa.Table | pa.RecordBatchReader):
        return data.schema
    raise InvalidRequestError(
        f"data must be a pyarrow RecordBatch, Table or RecordBatchReader, not {type(data).__name__}"
    )


def _parts(data: pa.RecordBatch | pa.Table | pa.RecordBatchReader) -> list[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return [data]
    return list(data.combine_chunks().to_batches() if isinstance(data, pa.Table) else data)


def _check_schema(schema: pa.Schema, topic: Topic | None) -> None:
    columns = typed_columns(topic)
    if topic is not None and columns is not None:
        from kmq_spark.client.typed_arrow import check_typed_columns

        check_typed_columns(schema, topic.name, columns)
    elif topic is not None:
        check_arrow_columns(schema)


def _checked(batch: pa.RecordBatch, topic: Topic | None) -> pa.RecordBatch:
    columns = typed_columns(topic)
    if topic is not None and columns is not None:
        from kmq_spark.client.typed_arrow import in_typed_columns

        return in_typed_columns(batch, topic.name, columns)
    if topic is None and not _is_plain(batch.schema):
        return batch  # what the topic takes is known when it is committed
    return _in_plain_columns(batch)


def _is_plain(schema: pa.Schema) -> bool:
    try:
        check_arrow_columns(schema)
    except InvalidRequestError:
        return False
    return True


def _in_plain_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch = in_stored_types(batch)
    if "headers" in batch.schema.names:
        check_headers(batch.column("headers"))
    if "properties" in batch.schema.names:
        check_properties(batch.column("properties"))
    if "partition" in batch.schema.names:
        check_partitions(batch.column("partition"))
    if "timestamp" in batch.schema.names:
        check_instants(batch.column("timestamp"))
    return batch


def plain_rows(batch: pa.RecordBatch, now: int) -> Rows:
    """Rows of an untyped topic from columns that it takes, checked as those of `send_arrow` are."""
    return rows_of_arrow(_in_plain_columns(batch), now)


def rows_of_topic_arrow(
    batch: pa.RecordBatch, topic: Topic, now: int, partition: int | None
) -> Rows:
    """Rows of a topic from an Arrow batch; InvalidRequestError when it doesn't fit."""
    columns = typed_columns(topic)
    if columns is not None:
        from kmq_spark.client.typed_arrow import rows_of_typed_arrow

        return rows_of_typed_arrow(batch, topic.name, columns, now, partition)
    check_arrow_columns(batch.schema)
    return rows_of_arrow(batch, now, partition)
