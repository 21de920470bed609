"""Writes to a typed topic: its own columns out of a DataFrame's, checked before any task starts."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from kmq_spark.client.typed_arrow import ADDED, check_typed_columns
from kmq_spark.client.typed_topics import TypedColumns
from kmq_spark.datasource.columns.typed_schema import spark_arrow_schema
from kmq_storage.errors import InvalidRequestError


def check_typed_sink(schema: StructType, topic: str, columns: TypedColumns) -> None:
    """InvalidRequestError for a missing column or a wrong type; others are ignored."""
    taken = StructType([f for f in schema.fields if f.name in taken_columns(columns)])
    try:
        arrow = spark_arrow_schema(taken)
    except PySparkException as error:
        raise InvalidRequestError(f"topic {topic} can't take these columns: {error}") from error
    check_typed_columns(arrow, topic, columns)


def taken_columns(columns: TypedColumns) -> tuple[str, ...]:
    """Which columns of a DataFrame a typed topic takes."""
    return (*columns.declared.names, *ADDED)
