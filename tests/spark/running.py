"""Running streaming queries in tests, and breaking their checkpoints on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.shop import Place, Shop

BatchFunction = Callable[[DataFrame, int], None]

#: What Spark says on a busy machine, before it has asked a source anything: it waits ten seconds
#: for a process that it starts, and no setting makes that longer.
_SLOW_START = "Python worker failed to connect back"
_ATTEMPTS = 5

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def patiently(
    act: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs
) -> _Result:
    """What a call gives that runs a query; again where a process was too slow for Spark."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return act(*args, **kwargs)
        except PySparkException as error:
            if _SLOW_START not in str(error):
                raise
    return act(*args, **kwargs)


class Collector:
    """A sink that keeps the places of each batch; a batch that comes again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Place]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Take a batch."""
        rows = frame.select("topic", "partition", "offset").collect()
        self.batches[number] = [tuple(row) for row in rows]

    @property
    def places(self) -> list[Place]:
        """Everything that came, in order."""
        return sorted(place for batch in self.batches.values() for place in batch)

    @property
    def sizes(self) -> list[int]:
        """How many records each batch had."""
        return [len(self.batches[number]) for number in sorted(self.batches)]


def load(spark: SparkSession, shop: Shop, **options: object) -> DataFrame:
    """A streaming frame over `orders`, from its beginning unless told otherwise."""
    chosen = {"subscribe": "orders", "startingOffsets": "earliest", **options}
    return spark.readStream.format("kmq").options(**chosen).load(shop.url)


def start(
    frame: DataFrame, sink: BatchFunction, checkpoint: Path, **trigger: object
) -> StreamingQuery:
    """Start a query that hands its batches to a function; by default it ends by itself."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def run(frame: DataFrame, sink: BatchFunction, checkpoint: Path) -> StreamingQuery:
    """Run a query to the end of what is there now."""
    return patiently(_run, frame, sink, checkpoint)


def _run(frame: DataFrame, sink: BatchFunction, checkpoint: Path) -> StreamingQuery:
    query = start(frame, sink, checkpoint)
    assert query.awaitTermination(120)
    return query


def forget_last_commit(checkpoint: Path) -> int:
    """Delete the last entry of `commits/`: Spark believes the batch didn't finish."""
    last = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last
