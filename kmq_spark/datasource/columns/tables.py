"""The tables of a store's own state (option `table`), as Spark declares them."""

from __future__ import annotations

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kmq_storage.tables.columns import COLUMNS

#: The names that option `table` takes.
TABLES = tuple(COLUMNS)


def table_spark_schema(table: str) -> StructType:
    """Return the columns of a table; as Arrow, record batches have them just as stored."""
    return from_arrow_schema(COLUMNS[table])
