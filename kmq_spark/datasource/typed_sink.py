"""Writes to a typed topic: its own columns out of a DataFrame's, checked before any task starts."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from kmq_spark.client.routing import Rows
from kmq_spark.client.typed_arrow import ADDED, check_typed_columns, rows_of_typed_arrow
from kmq_spark.client.typed_topics import TypedColumns, typed_columns
from kmq_spark.datasource.typed_schema import spark_arrow_schema
from kmq_storage.errors import InvalidRequestError
from kmq_storage.log.topic_state import Topic


def check_typed_sink(schema: StructType, topic: str, columns: TypedColumns) -> None:
    """InvalidRequestError for a missing column or a wrong type; others are ignored."""
    taken = StructType([f for f in schema.fields if f.name in _taken(columns)])
    try:
        arrow = spark_arrow_schema(taken)
    except PySparkException as error:
        raise InvalidRequestError(f"topic {topic} can't take these columns: {error}") from error
    check_typed_columns(arrow, topic, columns)


def _taken(columns: TypedColumns) -> tuple[str, ...]:
    return (*columns.declared.names, *ADDED)


def rows_of_sink(topic: Topic, batch: pa.RecordBatch, now: int) -> Rows | None:
    """The rows of a batch for a typed topic; None for an untyped one."""
    columns = typed_columns(topic)
    if columns is None:
        return None
    taken = [name for name in batch.schema.names if name in _taken(columns)]
    return rows_of_typed_arrow(batch.select(taken), topic.name, columns, now, None)
