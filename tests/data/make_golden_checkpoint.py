"""Make golden checkpoints of queries: `python tests/data/make_golden_checkpoint.py FOLDER`.

In `FOLDER/checkpoint-1` the query read the golden store `format-1-spark` for a group, and its last
batch didn't finish; in `FOLDER/checkpoint-1-state` it has state, over all columns of a read.
Run once; what it made before must be read for ever, so they are never made again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark.running import Collector, forget_last_commit, run
from tests.support.spark import start_session

STORE = Path(__file__).with_name("format-1-spark")
OPTIONS = {
    "subscribe": "totals",
    "startingOffsets": "earliest",
    "group": "readers",
    "maxOffsetsPerTrigger": "15",
}


def unique(frame: DataFrame) -> DataFrame:
    """A query whose state has every column that a read has unless told otherwise."""
    return frame.dropDuplicates()


def make(spark: SparkSession, scratch: Path, folder: Path) -> None:
    """Run the queries to their ends, and forget that the first one's third batch was finished."""
    store = shutil.copytree(STORE, scratch / "store")
    frame = spark.readStream.format("kmq").options(**OPTIONS).load(str(store))
    run(frame, Collector(), folder / "checkpoint-1")
    forget_last_commit(folder / "checkpoint-1")
    run(unique(_of_all(spark, store)), Collector(), folder / "checkpoint-1-state")
    for checksum in folder.rglob(".*.crc"):
        checksum.unlink()


def _of_all(spark: SparkSession, store: Path) -> DataFrame:
    reader = spark.readStream.format("kmq").option("subscribe", "totals")
    return reader.option("startingOffsets", "earliest").load(str(store))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        session = start_session(Path(name, "warehouse"))
        make(session, Path(name), Path(sys.argv[1]).resolve())
        session.stop()
