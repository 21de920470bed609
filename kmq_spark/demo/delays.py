"""The streaming query: flights in, departure delay per carrier and day out, exactly once.

It writes totals of batches, not running totals, since a Python sink can only append:

- Spark refuses update mode for every data source in Python.
- Complete mode would write the whole table again with each batch.
- A windowed aggregation in append mode holds the last day back until a later one comes.

So each task adds up its part of a batch (`totals` says why the sum of these is exact). The kmq sink
commits the batch once, under the query's id and the batch's number: a batch that Spark runs again
after a crash changes nothing. The query keeps no state, so it can run for years.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from kmq_spark.demo import flights, totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TOTALS = "carrier string, day string, flights bigint, departed bigint, minutes bigint"


def start_query(
    spark: SparkSession, store: str, *, source: str, target: str, group: str, checkpoint: Path
) -> StreamingQuery:
    """Start reading `source` as `group` and writing the delays of each batch to `target`."""
    from pyspark.sql import functions as F

    stream = (
        spark.readStream.format("kmq")
        .option("subscribe", source)
        .option("group", group)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 50_000)
        .load(store)
    )
    delays = parse(stream).mapInArrow(total_of_task, _TOTALS)
    return (
        delays.select(
            F.concat_ws("|", "carrier", "day").alias("key"),
            F.to_json(F.struct("*")).alias("value"),
        )
        .writeStream.format("kmq")
        .queryName(group)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .start(store)
    )


def parse(records: DataFrame) -> DataFrame:
    """The flights in the records' values."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    flight = F.from_json(F.col("value").cast("string"), from_arrow_schema(flights.SCHEMA))
    return records.select(flight.alias("flight")).select("flight.*")


def total_of_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One total for each carrier and day that a task meets in its part of a batch."""
    got = list(batches)
    if got:
        yield from totals.of_flights(pa.Table.from_batches(got)).combine_chunks().to_batches()
