"""Columns of a typed topic that got wider than the archive has them, as `alter_topic` allows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from kmq_spark.lake.batches import whole_batches
from kmq_spark.lake.files import opened
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import DELTA
from kmq_storage.errors import IllegalStateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)


def allow_wider(frame: DataFrame, place: ArchivePlace) -> None:
    """Have the Delta table take wider columns, if what is archived has any.

    Not before: few readers besides Spark open a table that may have columns of two widths.
    """
    from pyspark.errors import AnalysisException

    session = frame.sparkSession
    try:
        table = session.read.format(DELTA).load(place.url).schema
    except AnalysisException:  # there is none yet
        return
    if wider_columns(table, frame.schema):
        name = place.url.replace("`", "``")
        setting = "SET TBLPROPERTIES (delta.enableTypeWidening = true)"
        session.sql(f"ALTER TABLE delta.`{name}` {setting}")


def warn_of_wider(frame: DataFrame, place: ArchivePlace) -> None:
    """Log the columns that are wider than in the newest Parquet file: old files stay as they are.

    Files of two widths are no table to Spark, which reads wrong values or fails.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    if (newest := _newest(place)) is None:
        return
    with opened(place, newest) as file:
        before = from_arrow_schema(pa.schema(filter(_is_number, file.schema_arrow)))
    if wider := wider_columns(before, frame.schema):
        _log.warning(
            "archive %s: column %s got wider, and its older Parquet files have it as before: read "
            "it with kmq (option archive) only, as Spark's own reader may fail or return wrong "
            "values; an archive in Delta has no such limit",
            place.url,
            ", ".join(wider),
        )


def _newest(place: ArchivePlace) -> str | None:
    try:
        return next(reversed(whole_batches(place).files), None)
    except IllegalStateError:  # there is none yet
        return None


def _is_number(field: pa.Field) -> bool:
    kind, types = field.type, pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


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
