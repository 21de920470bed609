"""Drivers that are killed while they write topics to Delta.

    python -m tests.chaos.delta_kills --kills 15

A driver archives a topic again and again, each time trimming all of it (`kmq_spark.archive`); a
plain query beside that copies another topic into a Delta table. The driver is killed and started
again, mostly just when one of the two has written a batch, sometimes earlier. At the end each
record that was ever sent is in its table once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmq_spark import archive
from kmq_spark.demo import delta_jars
from tests.chaos.spark_stress import SLOW_STARTS
from tests.spark.running import patiently
from tests.spark.shop import Shop
from tests.support.spark import start_session, stay_on_this_machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[str, int, int, bytes]

#: The topic that is archived, and the one that is copied; its table is named as each.
ARCHIVED, COPIED = "archived", "copied"
_PARTITIONS = 3

DRIVER = """
import sys
from pathlib import Path
from tests.chaos.delta_kills import archive_all, copies
from tests.support.spark import start_session

folder, *jars = map(Path, sys.argv[1:])
spark = start_session(folder / "warehouse", jars)
query = copies(spark, folder, limit=100).start(str(folder / "copied"))
while query.isActive:
    archive_all(spark, folder)
raise query.exception()
"""


def copies(spark: SparkSession, folder: Path, *, limit: int) -> Any:
    """The writer of the plain query; each driver goes on with the checkpoint of the last one."""
    source = spark.readStream.format("kmq").option("subscribe", COPIED).option("group", "copier")
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", limit)
    writer = source.load(str(folder / "store")).writeStream.format("delta")
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def archive_all(spark: SparkSession, folder: Path) -> None:
    """Archive what is there, and trim it."""
    url, lake = str(folder / "store"), str(folder / ARCHIVED)
    archive.run(spark, url, lake, topics=[ARCHIVED], file_format="delta", keep=0)


class Kills:
    """What was sent, and the drivers that die of it."""

    def __init__(self, folder: Path, jars: Sequence[Path], rng: random.Random) -> None:
        self._folder, self._jars, self._rng = folder, jars, rng
        self._shop = Shop(folder / "store")
        for topic in (ARCHIVED, COPIED):
            self._shop.create(topic, _PARTITIONS)
        self.sent: Counter[Row] = Counter()
        self.counts: Counter[str] = Counter()

    def kill(self, *, early: bool) -> None:
        """Run a driver until both tables have grown, or not so long, and a moment; kill it."""
        while not self._killed(early=early):
            self.counts["runs that Spark lost patience with"] += 1
        self.counts["kills"] += 1
        self.counts["in the middle of a batch"] += self._open_batches()

    def _killed(self, *, early: bool) -> bool:
        """Whether a driver lived until it was killed."""
        before, moments = self._batches(), 15.0 if early else 3.0
        due = time.monotonic() + self._rng.uniform(0, moments) if early else None
        with self._driver() as driver:
            while due is None or time.monotonic() < due:
                if driver.poll() is not None:
                    return False
                self._send()
                if due is None and all(map(int.__gt__, self._batches(), before)):
                    due = time.monotonic() + self._rng.uniform(0, moments)
        return True

    def drain(self, spark: SparkSession) -> None:
        """Write all that is there."""
        patiently(archive_all, spark, self._folder)
        patiently(self._copy_all, spark)

    def wrong(self, spark: SparkSession) -> list[str]:
        """What the two tables, and history with log, don't have exactly once."""
        tables = [
            spark.read.format("delta").load(str(self._folder / n)) for n in (ARCHIVED, COPIED)
        ]
        found = Counter(row for table in tables for row in _rows(table))
        reader = spark.read.format("kmq").option("subscribe", ARCHIVED)
        whole = reader.option("archive", str(self._folder / ARCHIVED)).load(self._shop.url)
        archived = Counter({row: n for row, n in self.sent.items() if row[0] == ARCHIVED})
        return [
            *(f"lost: {row}" for row in (self.sent - found) + (archived - Counter(_rows(whole)))),
            *(f"twice: {row}" for row in (found - self.sent) + (Counter(_rows(whole)) - archived)),
        ]

    def close(self) -> None:
        """Close the store."""
        self._shop.close()

    def _copy_all(self, spark: SparkSession) -> None:
        query = copies(spark, self._folder, limit=1_000_000).trigger(availableNow=True)
        query.start(str(self._folder / COPIED)).awaitTermination()

    @contextmanager
    def _driver(self) -> Iterator[subprocess.Popen[bytes]]:
        self.counts["drivers"] += 1
        log = self._folder / f"driver-{self.counts['drivers']}.log"
        command = [sys.executable, "-c", DRIVER, str(self._folder), *map(str, self._jars)]
        with log.open("wb") as out:
            driver = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        try:
            yield driver
        finally:
            ended = driver.poll() is not None
            with suppress(ProcessLookupError):  # it ended, and all that it had started
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        slow = any(words in log.read_bytes() for words in SLOW_STARTS)
        assert slow or not ended, f"a driver ended by itself: {log}"

    def _send(self) -> None:
        for topic in (ARCHIVED, COPIED):
            places = self._shop.send(topic, self._rng.randrange(_PARTITIONS), 10)
            numbers = range(self.counts["records"], self.counts["records"] + len(places))
            self.sent.update((*place, b"v%d" % n) for place, n in zip(places, numbers, strict=True))
            self.counts["records"] += len(places)
        time.sleep(0.2)

    def _batches(self) -> list[int]:
        """How many commits each table has."""
        logs = (self._folder / table / "_delta_log" for table in (ARCHIVED, COPIED))
        return [len(list(log.glob("*.json"))) for log in logs]

    def _open_batches(self) -> int:
        """How many queries have planned a batch that isn't finished."""
        return sum(
            _last(offsets) > _last(offsets.with_name("commits"))
            for root in (self._folder / "checkpoint", self._folder / ARCHIVED)
            for offsets in root.glob("**/offsets")
        )


def _last(log: Path) -> int:
    return max((int(file.name) for file in log.glob("[0-9]*")), default=-1)


def _rows(table: Any) -> list[Row]:
    rows = table.select("topic", "partition", "offset", "value").collect()
    return [(row.topic, row.partition, row.offset, bytes(row.value)) for row in rows]


def main() -> int:
    """Kill, count, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    stay_on_this_machine()
    folder = Path(tempfile.mkdtemp(prefix="kmq-delta-kills-"))
    jars = delta_jars.fetch(folder / "jars")
    rng = random.Random(options.seed)
    storm = Kills(folder, jars, rng)
    for _ in range(options.kills):
        storm.kill(early=rng.random() < 0.25)
    spark = start_session(folder / "warehouse", jars)
    storm.drain(spark)
    wrong = storm.wrong(spark)
    print(json.dumps({"seed": options.seed, **storm.counts, "wrong": wrong[:20]}))
    storm.close()
    spark.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
