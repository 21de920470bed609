"""Writes to a typed topic: its own columns out of a DataFrame's, checked before any task starts."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from kmq_spark.client.typed_arrow import ADDED, check_typed_columns
from kmq_spark.client.typed_topics import TypedColumns
from kmq_spark.datasource.columns.typed_schema import spark_arrow_schema
from kmq_storage.errors import InvalidRequestError


def check_typed_sink(schema: StructType, topic: str, columns: TypedColumns) -> None:
    """InvalidRequestError for a missing column or a wrong type; others are ignored."""
    check_spelling(schema.names, topic, columns)
    taken = StructType([f for f in schema.fields if f.name in taken_columns(columns)])
    try:
        arrow = spark_arrow_schema(taken)
    except PySparkException as error:
        raise InvalidRequestError(f"topic {topic} can't take these columns: {error}") from error
    check_typed_columns(arrow, topic, columns)


def taken_columns(columns: TypedColumns) -> tuple[str, ...]:
    """Which columns of a DataFrame a typed topic takes."""
    return (*columns.declared.names, *ADDED)


def check_spelling(names: Sequence[str], topic: str, columns: TypedColumns) -> None:
    """Refuse what would store nulls without a word; Spark itself doesn't mind letter case."""
    declared, taken = columns.declared.names, taken_columns(columns)
    missing = {name.lower(): name for name in taken if name not in names}
    for name in names:
        if name not in taken and name.lower() in missing:
            own = missing[name.lower()]
            raise InvalidRequestError(
                f"column {name!r}: topic {topic} has {own!r}, and letter case counts; rename it",
                topic=topic,
                column=name,
            )
    if declared and set(declared).isdisjoint(names):
        raise InvalidRequestError(
            f"topic {topic} has columns {', '.join(declared)}, the rows have none of them (there "
            f"are {', '.join(names) or 'none'})",
            topic=topic,
        )
