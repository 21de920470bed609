"""Arrow data as users have it, for topics of both kinds: a batch, a table or a reader.

What only typed topics need is loaded when there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from kmq_spark.client.encoding.routing import Rows
from kmq_spark.client.encoding.rows import (
    check_added,
    check_arrow_columns,
    in_stored_types,
    rows_of_arrow,
)
from kmq_spark.client.typed.topics import checked_with_known, typed_columns
from kmq_spark.errors import InvalidRequestError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import queue_of_log


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A record batch in stored types whose values a topic takes, as far as it was known."""

    batch: pa.RecordBatch
    #: The schemas of the topic that it was checked for: () for an untyped one, None for no topic.
    schemas: tuple[str, ...] | None
    #: The batch as it was sent, with no column added or cast: a topic made anew may take only that.
    sent: pa.RecordBatch


def batches_of(log: CommitLog, topic: str, data: object) -> list[CheckedBatch]:
    """The non-empty record batches of a RecordBatch, Table or RecordBatchReader.

    InvalidRequestError for what the topic doesn't take, of no rows too.
    """
    schema = _schema_of(data)
    checked_with_known(log, topic, lambda known: _check_schema(schema, known))
    batches = [batch for batch in _parts(data) if batch.num_rows]
    checked = checked_with_known(
        log, topic, lambda known: [_checked(each, known) for each in batches or [_empty(schema)]]
    )
    return checked if batches else []


def _schema_of(data: object) -> pa.Schema:
    if isinstance(data, pa.RecordBatch | pa.Table | pa.RecordBatchReader):
        return data.schema
    way_out = ": pyarrow.table(data) makes one" if hasattr(data, "__arrow_c_stream__") else ""
    raise InvalidRequestError(
        "data must be a pyarrow RecordBatch, Table or RecordBatchReader, "
        f"not {type(data).__name__}{way_out}"
    )


def _parts(data: pa.RecordBatch | pa.Table | pa.RecordBatchReader) -> list[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return [data]
    if not isinstance(data, pa.Table):
        return list(data)
    try:
        return list(data.combine_chunks().to_batches())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # dictionaries that can't be unified
        return list(data.to_batches())


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows, to check its types as those of any batch."""
    arrays = []
    for field in schema:
        try:
            arrays.append(pa.array([], field.type))
        except pa.ArrowNotImplementedError as error:  # a union
            raise InvalidRequestError(
                f"column {field.name!r} of type {field.type}: a topic takes no such columns",
                column=field.name,
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_schema(schema: pa.Schema, topic: Topic | None) -> None:
    columns = typed_columns(topic)
    if topic is not None and columns is not None:
        from kmq_spark.client.typed.arrow import check_typed_columns

        check_typed_columns(schema, topic.name, columns)
    elif topic is not None:
        check_arrow_columns(schema)


def _checked(batch: pa.RecordBatch, topic: Topic | None) -> CheckedBatch:
    columns = typed_columns(topic)
    if topic is not None and columns is not None:
        from kmq_spark.client.typed.arrow import in_typed_columns

        return CheckedBatch(in_typed_columns(batch, topic.name, columns), columns.schemas, batch)
    if topic is None and not _is_plain(batch.schema):
        return CheckedBatch(batch, None, batch)  # the commit checks what the topic takes
    return CheckedBatch(_in_plain_columns(batch), (), batch)


def _is_plain(schema: pa.Schema) -> bool:
    try:
        check_arrow_columns(schema)
    except InvalidRequestError:
        return False
    return True


def _in_plain_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch = in_stored_types(batch)
    check_added(dict(zip(batch.schema.names, batch.columns, strict=True)))
    return batch


def rows_of_topic_arrow(
    checked: CheckedBatch, topic: Topic, now: int, partition: int | None
) -> Rows:
    """Rows of a topic from an Arrow batch; InvalidRequestError when it doesn't fit."""
    if checked.schemas != topic.settings.schemas:  # the topic was made or changed meanwhile
        _check_schema(checked.sent.schema, topic)
        checked = _checked(checked.sent, topic)
    batch, columns = checked.batch, typed_columns(topic)
    if columns is not None:
        from kmq_spark.client.typed.arrow import rows_of_typed_arrow

        return rows_of_typed_arrow(batch, columns, now, partition)
    if batch.column("value").null_count and queue_of_log(topic.name) is not None:
        raise InvalidRequestError(
            f"column 'value' is null in a row for queue {queue_of_log(topic.name)}: a queue takes "
            "no tombstones, leave such rows out",
            column="value",
        )
    return rows_of_arrow(batch, now, partition)
