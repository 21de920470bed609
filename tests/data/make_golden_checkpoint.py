"""Make the golden checkpoint of a query: `python tests/data/make_golden_checkpoint.py FOLDER`.

The query read the golden store `format-1-spark` for a group, and its last batch didn't finish.
Run once; what it made before must be read for ever, so `checkpoint-1` is never made again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.running import Collector, forget_last_commit, run
from tests.support.spark import start_session

STORE = Path(__file__).with_name("format-1-spark")
OPTIONS = {
    "subscribe": "totals",
    "startingOffsets": "earliest",
    "group": "readers",
    "maxOffsetsPerTrigger": "15",
}


def make(spark: SparkSession, scratch: Path, folder: Path) -> None:
    """Run the query to its end, and forget that the third batch was finished."""
    shutil.copytree(STORE, scratch / "store")
    frame = spark.readStream.format("kmq").options(**OPTIONS).load(str(scratch / "store"))
    run(frame, Collector(), folder)
    forget_last_commit(folder)
    for checksum in folder.rglob(".*.crc"):
        checksum.unlink()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        session = start_session(Path(name, "warehouse"))
        make(session, Path(name), Path(sys.argv[1]).resolve())
        session.stop()
