"""Make a golden checkpoint: `python -m tests.data make_golden_losses FOLDER`.

In `FOLDER/checkpoint-1-losses` a query that was to read the golden store `format-1-spark` from
below its trimmed start counted what it lost, and its only batch didn't finish.
It was run once; what it made must be read for ever, so it is never made again.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import kmq_spark as kmq
from tests.spark.running import Collector, forget_last_commit, run
from tests.support.spark import start_session

STORE = Path(__file__).with_name("format-1-spark")
#: Where the query is to begin, where the log begins, and where it ends.
WANTED, TRIMMED, END = 10, 22, 40


def trimmed_store(folder: Path) -> Path:
    """A copy of the store, trimmed."""
    store = shutil.copytree(STORE, folder / "store")
    with kmq.open(store) as opened:
        opened.trim("totals", {0: TRIMMED})
    return store


def records(spark: SparkSession, store: Path) -> DataFrame:
    """What the query reads."""
    reader = spark.readStream.format("kmq").option("subscribe", "totals")
    reader = reader.option("startingOffsets", f'{{"totals": {{"0": {WANTED}}}}}')
    return reader.option("failOnDataLoss", "false").load(str(store))


def make(folder: Path) -> None:
    """Run the query to its end, and forget that its batch was finished."""
    checkpoint = folder.resolve() / "checkpoint-1-losses"
    with tempfile.TemporaryDirectory() as name:
        spark = start_session(Path(name, "warehouse"))
        run(records(spark, trimmed_store(Path(name))), Collector(), checkpoint)
        spark.stop()
    forget_last_commit(checkpoint)
    for checksum in checkpoint.rglob(".*.crc"):
        checksum.unlink()
