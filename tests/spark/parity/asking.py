"""How a scenario asks both logs the same, and what it writes down.

A scenario is a function of an Asker. It notes facts: a name, and what was found. Facts that are
not the same on both sides are the differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

from tests.spark.parity.sides import Record, Side
from tests.spark.running import Collector, patiently

Scenario = Callable[["Asker"], None]


@dataclass(frozen=True)
class Finding:
    """What one side did; the words of an error may differ."""

    what: str
    said: str = field(default="", compare=False)


class Asker:
    """One side of one scenario."""

    def __init__(self, spark: SparkSession, side: Side, scenario: str, folder: Path) -> None:
        self.spark = spark
        self.side = side
        self.found: dict[str, Finding] = {}
        self._prefix = scenario.replace("_", "-")
        self._checkpoints = (folder / f"{scenario}-{n}" for n in itertools.count())

    def topic(self, name: str = "orders", partitions: int = 1, records: int = 0) -> str:
        """Make a topic that no other scenario has, with records in partition 0."""
        full = f"{self._prefix}.{name}"
        self.side.create(full, partitions)
        self.send(full, records)
        return full

    def send(self, topic: str, count: int, partition: int = 0, begin: int = 0) -> None:
        """Append records that are numbered and a second apart."""
        numbers = range(begin, begin + count)
        self.side.send(
            topic, [Record(b"v%d" % n, b"k%d" % n, partition, n * 1000) for n in numbers]
        )

    def checkpoint(self) -> Path:
        """A new folder for a query's checkpoint."""
        return next(self._checkpoints)

    def reader(self, **options: object) -> DataFrameReader:
        """A batch read of this side."""
        reader = self.spark.read.format(self.side.name).options(**self.side.address)
        return reader.options(**options)

    def read(self, **options: object) -> DataFrame:
        """A batch frame of this side."""
        return self.reader(**options).load()

    def stream_reader(self, **options: object) -> DataStreamReader:
        """A streaming read of this side."""
        reader = self.spark.readStream.format(self.side.name).options(**self.side.address)
        return reader.options(**options)

    def run(self, checkpoint: Path, trigger: str = "availableNow", **options: object) -> Collector:
        """Run a query to the end of what is there; what it read.

        Again from its checkpoint where Spark lost patience with a process that it had started.
        """
        sink = Collector()

        def run() -> None:
            writer = self.stream_reader(**options).load().writeStream.foreachBatch(sink)
            writer = writer.option("checkpointLocation", str(checkpoint))
            ended(writer.trigger(**{trigger: True}).start())

        patiently(run)
        return sink

    def note(self, fact: str, found: object) -> None:
        """Write a fact down."""
        self.found[fact] = Finding(self._plain(found))

    def ask(self, fact: str, load: Callable[[], Any], use: Callable[[Any], object]) -> None:
        """Write down what comes out, or whether it is refused at load() or when it runs."""
        step = "load"
        try:
            frame = load()
            step = "run"
            self.note(fact, use(frame))
        except (PySparkException, Py4JJavaError, AssertionError) as error:
            self.found[fact] = Finding(f"refused at {step}", _said(error))

    def ask_stream(self, fact: str, checkpoint: Path, **options: object) -> None:
        """Write down which records a query reads until it ends."""
        trigger = str(options.pop("trigger", "availableNow"))
        self.ask(
            fact,
            lambda: self.stream_reader(**options).load(),
            lambda _: places(self.run(checkpoint, trigger, **options).places),
        )

    def _plain(self, found: object) -> str:
        return str(found).replace(f"{self._prefix}.", "")


def rows(frame: DataFrame) -> str:
    """Which records a frame has, by topic, partition and offset."""
    taken = frame.select("topic", "partition", "offset").collect()
    return places(sorted(tuple(row) for row in taken))


def places(taken: list[tuple[str, int, int]]) -> str:
    """Ranges of offsets: `orders-0: 3-7; orders-1: 0-2`."""
    by_partition = itertools.groupby(sorted(taken), key=lambda place: place[:2])
    ranges = [
        f"{topic}-{partition}: {', '.join(_ranges([offset for _, _, offset in some]))}"
        for (topic, partition), some in by_partition
    ]
    return "; ".join(ranges) or "no rows"


def ended(query: StreamingQuery) -> StreamingQuery:
    """Wait for a query that ends by itself."""
    if not query.awaitTermination(120):
        query.stop()
        raise AssertionError("the query did not end within 120 s")
    return query


def _ranges(offsets: list[int]) -> Iterator[str]:
    first = last = offsets[0]
    for offset in [*offsets[1:], None]:
        if offset is None or offset != last + 1:
            yield str(first) if first == last else f"{first}-{last}"
            first = offset if offset is not None else first
        last = offset if offset is not None else last


def _said(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if "kmq_storage.errors" in line]
    causes = [line for line in lines if "Exception: " in line]
    return (own[:1] or causes[-1:] or lines[:1] or [""])[0][:300]
