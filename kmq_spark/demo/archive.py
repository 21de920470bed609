"""The third step: the whole topic as a table of files, read back and counted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet

from kmq_spark.demo import delays, flights, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Archive:
    """What an archive holds, as counted in its files."""

    format: str
    path: str
    rows: int
    different_ids: int


def write_with_spark(
    spark: SparkSession, store: str, topic: str, *, path: Path, file_format: str
) -> Archive:
    """Archive the topic as Parquet or Delta with a Spark job."""
    from pyspark.sql import functions as F

    records = spark.read.format("kmq").option("subscribe", topic).load(store)
    delays.parse(records).write.format(file_format).save(str(path))
    table = spark.read.format(file_format).load(str(path))
    rows, ids = table.agg(F.count("*"), F.count_distinct("id")).head() or (0, 0)
    return Archive(file_format, str(path), rows, ids)


def write_with_arrow(store: Any, topic: str, *, path: Path) -> Archive:
    """Archive the topic as Parquet in this process, a record batch at a time."""
    path.mkdir(parents=True)
    with pyarrow.parquet.ParquetWriter(path / "flights.parquet", flights.SCHEMA) as writer:
        for batch in store.read(topic, columns=["value"]):
            writer.write_table(messages.decode(batch["value"], flights.SCHEMA))
    table = pyarrow.parquet.read_table(path, columns=["id"])
    return Archive("parquet", str(path), table.num_rows, pc.count_distinct(table["id"]).as_py())
