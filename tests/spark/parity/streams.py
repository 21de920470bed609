"""Scenarios of streams, after KafkaMicroBatchSourceSuite."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tests.spark.parity.asking import Asker, ended, places, rows
from tests.spark.running import Collector, forget_last_commit

_EARLIEST = {"startingOffsets": "earliest"}


def limits_of_a_batch(ask: Asker) -> None:
    """How much each batch takes, by trigger; a restart with another limit."""
    topic = ask.topic("orders", 3, 101)
    ask.send(topic, 11, partition=1)
    ask.send(topic, 1, partition=2)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 50, **_EARLIEST}
    checkpoint = ask.checkpoint()
    taken = ask.run(checkpoint, **options)
    ask.note("AvailableNow, sizes of the batches", taken.sizes)
    ask.note("AvailableNow, rows", places(taken.places))
    ask.note("AvailableNow, first batch", places(taken.batches[0]))
    ask.note("Once, sizes of the batches", ask.run(ask.checkpoint(), "once", **options).sizes)
    ask.send(topic, 10)
    changed = ask.run(checkpoint, **{**options, "maxOffsetsPerTrigger": 4})
    ask.note("restarted with another limit", changed.sizes)
    huge = {**options, "maxOffsetsPerTrigger": 2**63 - 1}
    ask.note("the largest limit", ask.run(ask.checkpoint(), **huge).sizes)


def waiting_for_a_minimum(ask: Asker) -> None:
    """minOffsetsPerTrigger where the query ends by itself."""
    topic = ask.topic("orders", 1, 10)
    options = {"subscribe": topic, "minOffsetsPerTrigger": 8, **_EARLIEST}
    checkpoint = ask.checkpoint()
    ask.ask_stream("first run", checkpoint, **options)
    ask.send(topic, 3)
    ask.ask_stream("second run, fewer than the minimum", checkpoint, **options)
    ask.ask_stream("Once", ask.checkpoint(), trigger="once", **options)
    limited = {**options, "maxOffsetsPerTrigger": 9}
    ask.ask_stream("a rest below the minimum", ask.checkpoint(), **limited)


def starts_and_restarts(ask: Asker) -> None:
    """Where a query begins, and that its checkpoint goes before its options."""
    topic = ask.topic("orders", 2, 3)
    default, checkpoint = ask.checkpoint(), ask.checkpoint()
    ask.ask_stream("default start", default, subscribe=topic)
    ask.ask_stream("earliest", checkpoint, subscribe=topic, **_EARLIEST)
    ask.send(topic, 2)
    ask.ask_stream("default start, restarted", default, subscribe=topic)
    ask.ask_stream("restarted from latest", checkpoint, subscribe=topic, startingOffsets="latest")
    forget_last_commit(checkpoint)
    ask.ask_stream("restarted after a batch that didn't finish", checkpoint, subscribe=topic)
    ask.side.grow(topic, 3)
    ask.send(topic, 4, partition=2)
    ask.ask_stream("a partition was added", checkpoint, subscribe=topic)
    some = json.dumps({topic: {"0": 1, "1": -2, "2": -1}})
    ask.ask_stream("from offsets", ask.checkpoint(), subscribe=topic, startingOffsets=some)
    few = json.dumps({topic: {"0": 1}})
    ask.ask_stream("from offsets of some", ask.checkpoint(), subscribe=topic, startingOffsets=few)


def watermarks_and_joins(ask: Asker) -> None:
    """Windows that a watermark closes, and a stream that is joined with itself."""
    topic = ask.topic("orders", 1, 90)
    frame = ask.stream_reader(subscribe=topic, maxOffsetsPerTrigger=60, **_EARLIEST).load()
    late = frame.withWatermark("timestamp", "10 seconds")
    counts = late.groupBy(f.window("timestamp", "30 seconds")).count()
    ask.note("windows that were closed", _written(ask, counts.select("count")))
    other = frame.selectExpr("key AS k", "offset AS o")
    pairs = frame.join(other, (f.col("key") == f.col("k")) & (f.col("offset") == f.col("o")))
    ask.note("pairs of a record with itself", len(_written(ask, pairs.select("offset"))))


def _written(ask: Asker, frame: DataFrame) -> list[int]:
    """The numbers that a query has written when it ended."""
    found: list[int] = []
    writer = frame.writeStream.foreachBatch(
        lambda batch, _: found.extend(row[0] for row in batch.collect())
    )
    writer = writer.option("checkpointLocation", str(ask.checkpoint()))
    ended(writer.trigger(availableNow=True).start())
    return sorted(found)


def what_progress_shows(ask: Asker) -> None:
    """The offsets of the source as Spark shows and keeps them."""
    topic = ask.topic("orders", 2, 3)
    checkpoint = ask.checkpoint()
    reader = ask.stream_reader(subscribe=topic, maxOffsetsPerTrigger=2, **_EARLIEST)
    writer = reader.load().writeStream.foreachBatch(Collector())
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    (source,) = ended(writer.start()).lastProgress.sources
    for name in ("startOffset", "endOffset", "latestOffset"):
        offset = json.loads(getattr(source, name))
        ask.note(name, {key: offset[key] for key in offset if not key.startswith("#")})
        ask.note(f"other keys of {name}", [key for key in offset if key.startswith("#")])
    ask.note("rows", source.numInputRows)
    ask.note("metrics", sorted(source.metrics or {}))
    ask.note("files beside the offsets", sorted(path.name for path in checkpoint.glob("sources")))


def topics_come_and_go(ask: Asker) -> None:
    """A pattern, topics that are made and deleted between the runs."""
    first = ask.topic("t1", 1, 3)
    options = {"subscribePattern": f"{first[:-1]}.", **_EARLIEST}
    checkpoint = ask.checkpoint()
    ask.ask_stream("one topic", checkpoint, **options)
    ask.topic("t2", 1, 2)
    ask.ask_stream("a second topic", checkpoint, **options)
    ask.side.delete(first)
    ask.topic("t3", 1, 4)
    ask.ask_stream("the first is deleted", checkpoint, **options)
    ask.ask_stream(
        "the first is deleted, failOnDataLoss=false", checkpoint, failOnDataLoss=False, **options
    )


def topics_of_a_running_query(ask: Asker) -> None:
    """The same while one query runs."""
    first = ask.topic("t1", 1, 3)
    options = {"subscribePattern": f"{first[:-1]}.", "failOnDataLoss": False, **_EARLIEST}
    sink = Collector()
    writer = ask.stream_reader(**options).load().writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(ask.checkpoint())).start()
    try:
        query.processAllAvailable()
        second = ask.topic("t2", 1, 2)
        query.processAllAvailable()
        ask.note("a topic came", places(sink.places))
        ask.side.grow(second, 2)
        ask.send(second, 3, partition=1)
        query.processAllAvailable()
        ask.note("a partition came", places(sink.places))
        ask.side.delete(first)
        ask.send(second, 1)
        query.processAllAvailable()
        ask.note("a topic went", places(sink.places))
    finally:
        query.stop()


def less_after_a_restart(ask: Asker) -> None:
    """A restart that leaves a topic out, and one that has it again."""
    kept, dropped = ask.topic("kept", 1, 3), ask.topic("dropped", 1, 4)
    both = {"subscribe": f"{kept},{dropped}", **_EARLIEST}
    checkpoint = ask.checkpoint()
    ask.run(checkpoint, **both)
    ask.send(kept, 1)
    ask.ask_stream("a topic less", checkpoint, subscribe=kept)
    careless = {"subscribe": kept, "failOnDataLoss": False}
    ask.ask_stream("a topic less, failOnDataLoss=false", checkpoint, **careless)
    ask.send(dropped, 1)
    ask.ask_stream("both again", checkpoint, **both)


def topics_made_again(ask: Asker) -> None:
    """Deleted and made again, with fewer and with more records than were read."""
    for name, again in (("with fewer records", 2), ("with as many", 5), ("with more", 9)):
        for fail in (True, False):
            topic = ask.topic(f"again-{again}-{fail}".lower(), 1, 5)
            options = {"subscribe": topic, "failOnDataLoss": fail, **_EARLIEST}
            checkpoint = ask.checkpoint()
            ask.run(checkpoint, **options)
            ask.side.delete(topic)
            ask.side.create(topic, 1)
            ask.send(topic, again, begin=100)
            ask.ask_stream(f"{name}, failOnDataLoss={fail}", checkpoint, **options)
            ask.send(topic, 1, begin=200)
            ask.ask_stream(f"{name}, failOnDataLoss={fail}, a record later", checkpoint, **options)


def records_that_aged_out(ask: Asker) -> None:
    """Trimmed before the first run, and between two runs."""
    topic = ask.topic("orders", 1, 5)
    ask.side.trim(topic, 0, 2)
    checkpoints = {fail: ask.checkpoint() for fail in (True, False)}
    for fail, checkpoint in checkpoints.items():
        _read_strictly(ask, f"earliest, failOnDataLoss={fail}", topic, checkpoint, fail)
    ask.send(topic, 5)
    ask.side.trim(topic, 0, 8)
    for fail, checkpoint in checkpoints.items():
        _read_strictly(ask, f"trimmed between runs, failOnDataLoss={fail}", topic, checkpoint, fail)
    start = json.dumps({topic: {"0": 1}})
    for fail in (True, False):
        options = {"subscribe": topic, "startingOffsets": start, "failOnDataLoss": fail}
        ask.ask(f"batch from 1, failOnDataLoss={fail}", lambda o=options: ask.read(**o), rows)


def _read_strictly(ask: Asker, fact: str, topic: str, checkpoint: Path, fail: bool) -> None:
    ask.ask_stream(fact, checkpoint, subscribe=topic, failOnDataLoss=fail, **_EARLIEST)
