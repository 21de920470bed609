"""Departure delay per carrier and day, as sums that can be added up.

A total here is three numbers: flights, those of them that departed, and the minutes they were late.
Sums of parts are the sum of the whole, in any order and any grouping. So a stream may write the
total of each of its batches to an append-only topic, and a reader adds up all of them. The sum is
exact if each flight is in exactly one batch and each batch is in the topic exactly once. So a
flight that is lost or counted twice shows up.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kmq_spark.demo import messages

SCHEMA = pa.schema(
    [
        ("carrier", pa.string()),
        ("day", pa.string()),
        ("flights", pa.int64()),
        ("departed", pa.int64()),
        ("minutes", pa.int64()),
    ]
)

_KEY = ["carrier", "day"]


def of_flights(flights: pa.Table) -> pa.Table:
    """The totals of these flights; a cancelled one has no delay and doesn't depart."""
    none_is_zero = pc.ScalarAggregateOptions(min_count=0)
    table = flights.group_by(_KEY).aggregate(
        [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum", none_is_zero)]
    )
    return _sorted(table)


def of_topic(store: Any, topic: str) -> pa.Table:
    """The totals that all records of the topic add up to."""
    values = store.read(topic, columns=["value"]).read_all()["value"]
    return add_up(messages.decode(values, SCHEMA))


def add_up(parts: pa.Table, by: list[str] | None = None) -> pa.Table:
    """One row for each carrier and day, or for each of the columns asked for."""
    key = by or _KEY
    table = parts.group_by(key).aggregate([(n, "sum") for n in SCHEMA.names if n not in _KEY])
    return _sorted(table, key)


def keys(totals: pa.Table) -> pa.ChunkedArray:
    """The message keys: carrier and day, so that one pair's totals share a partition."""
    return pc.binary_join_element_wise(totals["carrier"], totals["day"], "|")


def with_mean(totals: pa.Table) -> pa.Table:
    """The totals with the mean delay in minutes; none where no flight departed."""
    departed = pc.if_else(pc.equal(totals["departed"], 0), None, totals["departed"])
    mean = pc.divide(totals["minutes"].cast(pa.float64()), departed.cast(pa.float64()))
    return totals.append_column("mean", mean)


def _sorted(table: pa.Table, key: list[str] | None = None) -> pa.Table:
    key = key or _KEY
    schema = pa.schema([f for f in SCHEMA if f.name in key or f.name not in _KEY])
    table = table.rename_columns(schema.names)
    return table.cast(schema).sort_by([(name, "ascending") for name in key])
