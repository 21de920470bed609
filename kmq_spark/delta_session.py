"""The settings with which a Spark session knows Delta."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

#: What a Spark session needs beside the jars.
SESSION_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def delta_settings(jars: Sequence[Path | str]) -> dict[str, str]:
    """What a session with Delta in these jars, and with small tables only, is started with."""
    return {
        **SESSION_SETTINGS,
        "spark.jars": ",".join(map(str, jars)),
        # Delta reads its log with 50 tasks otherwise.
        "spark.databricks.delta.snapshotPartitions": "2",
    }
