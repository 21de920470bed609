"""What a read gives Spark: which columns, of untyped topics or of typed ones of one schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from kmq_spark.datasource.options import SourceOptions
from kmq_spark.datasource.schema import arrow_schema, spark_schema
from kmq_spark.datasource.typed_schema import (
    check_view,
    one_schema,
    spark_arrow_schema,
    typed_spark_schema,
)
from kmq_storage.errors import InvalidRequestError
from kmq_storage.log.topic_state import Topic


@dataclass(frozen=True)
class View:
    """The columns of a read, on their way to the executors."""

    arrow: pa.Schema
    #: The columns of typed topics; None for untyped ones.
    columns: StructType | None = None

    @property
    def typed(self) -> bool:
        """Whether the topics are typed."""
        return self.columns is not None

    def check(self, topics: Sequence[Topic]) -> None:
        """InvalidRequestError when a topic, perhaps a later one, has other columns than these."""
        for topic in topics:
            if bool(topic.settings.schemas) != self.typed:
                kinds = ("untyped", "typed") if self.typed else ("typed", "untyped")
                raise InvalidRequestError(
                    f"topic {topic.name} is {kinds[0]}, those of this read are {kinds[1]}: "
                    "load them one by one",
                    topic=topic.name,
                )
        schema = one_schema(topics)
        if self.columns is not None and schema is not None:
            check_view(self.columns, typed_spark_schema(schema, include_metadata=True))


def plain_view(options: SourceOptions) -> View:
    """The view of untyped topics."""
    return View(arrow_schema(include_headers=options.include_headers))


def columns_of_read(topics: Sequence[Topic], options: SourceOptions) -> StructType:
    """The columns of these topics; InvalidRequestError when they have not the same."""
    schema = one_schema(topics)
    if schema is None:
        return spark_schema(include_headers=options.include_headers)
    if options.include_headers:
        raise InvalidRequestError(
            "option 'includeHeaders' is for untyped topics; a typed topic has its own columns, "
            "and with 'includeMetadata' also _topic, _partition, _offset and _timestamp",
            option="includeHeaders",
        )
    return typed_spark_schema(schema, include_metadata=options.include_metadata)


def view_of(wanted: StructType, topics: Sequence[Topic], options: SourceOptions) -> View:
    """The view of a read that Spark planned for these columns."""
    current = columns_of_read(topics, options)
    if one_schema(topics) is not None:
        check_view(wanted, current)
        return View(spark_arrow_schema(wanted), wanted)
    if wanted.simpleString() != current.simpleString():
        raise InvalidRequestError(
            "the columns of a kmq read are fixed and can't be set: remove schema(...)"
        )
    return plain_view(options)
