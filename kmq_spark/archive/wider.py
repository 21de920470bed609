"""Columns of a typed topic that got wider than the archive has them, as `alter_topic` allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import DELTA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def allow_wider(batch: DataFrame, place: ArchivePlace) -> None:
    """Have the Delta table take wider columns, if the batch has any.

    Not before: few readers besides Spark open a table that may have columns of two widths.
    """
    from pyspark.errors import AnalysisException

    session = batch.sparkSession
    try:
        table = session.read.format(DELTA).load(place.url).schema
    except AnalysisException:  # there is none yet
        return
    if wider_columns(table, batch.schema):
        name = place.url.replace("`", "``")
        setting = "SET TBLPROPERTIES (delta.enableTypeWidening = true)"
        session.sql(f"ALTER TABLE delta.`{name}` {setting}")


def wider_columns(before: StructType, now: StructType) -> list[str]:
    """The columns that have another type of number than before: they get only wider."""
    from pyspark.sql.types import NumericType

    kinds = {field.name: field.dataType for field in before}
    found = ((field, kinds.get(field.name)) for field in now)
    return [
        field.name
        for field, kind in found
        if isinstance(kind, NumericType) and kind != field.dataType
    ]
