"""Slices of several partitions as one table: they have the same columns, or are refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from kmq_spark.client.records.record_columns import public_batches, public_schema
from kmq_spark.errors import InvalidRequestError
from kmq_storage.log.reading.scan import Slice
from kmq_storage.log.state.topic_state import Topic


def check_one_schema(topics: Iterable[Topic | None]) -> None:
    """InvalidRequestError, naming two topics, unless all that are there have the same columns."""
    by_schemas = {topic.settings.schemas: topic for topic in topics if topic is not None}
    if len(by_schemas) < 2:
        return
    first, *others = by_schemas.values()
    for other in others:
        if first.settings.schema != other.settings.schema:
            raise InvalidRequestError(
                f"topics {first.name} and {other.name} have different schemas: one table can't "
                "hold both, read them with a consumer each, or pause one of them",
                topics=[first.name, other.name],
            )


def table_of(slices: Sequence[Slice]) -> pa.Table:
    """The rows of slices of one schema under the newest version of it that one of them has."""
    newest = max((part.layout for part in slices), key=lambda layout: layout.rank)
    schema = public_schema(newest)
    batches = [
        batch
        for part in slices
        for batch in public_batches(replace(part, batch=newest.current(part.batch)), schema)
    ]
    return pa.Table.from_batches(batches, schema)
