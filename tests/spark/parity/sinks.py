"""Scenarios of writes, after KafkaSinkSuite."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from tests.spark.parity.asking import Asker, ended
from tests.spark.running import forget_last_commit

_HEADERS = "array(named_struct('key', 'h', 'value', cast('1' as binary))) headers"

#: Expressions of a frame with one row.
COLUMNS = {
    "value as text": ["'x' value"],
    "value as bytes": ["cast('x' as binary) value"],
    "value null": ["cast(null as string) value"],
    "value missing": ["'x' key"],
    "value as number": ["1 value"],
    "key as bytes": ["'x' value", "cast('k' as binary) key"],
    "key as number": ["'x' value", "1 key"],
    "headers": ["'x' value", _HEADERS],
    "headers null": ["'x' value", "cast(null as array<struct<key:string,value:binary>>) headers"],
    "headers empty": [
        "'x' value",
        "cast(array() as array<struct<key:string,value:binary>>) headers",
    ],
    "headers as text": ["'x' value", "'h' headers"],
    "partition": ["'x' value", "1 partition"],
    "partition null": ["'x' value", "cast(null as int) partition", "'k' key"],
    "partition as bigint": ["'x' value", "1L partition"],
    "partition that isn't there": ["'x' value", "7 partition"],
    "partition below 0": ["'x' value", "-1 partition"],
    "other columns": ["'x' value", "1 other"],
    "another one of VARIANT": ["'x' value", "parse_json('{}') other"],
    "another one of months": ["'x' value", "interval '1' year other"],
    "timestamp as text": ["'x' value", "'2024' timestamp"],
    "properties as number": ["'x' value", "1 properties"],
    "value twice": ["'x' value", "'y' value"],
    "Value in capitals": ["'x' VALUE"],
}


def columns_of_a_write(ask: Asker) -> None:
    """Which columns are taken, and what is read back of one row."""
    for number, (fact, columns) in enumerate(COLUMNS.items()):
        # Only where it is given: both sides are free to choose one for a row without key.
        topic = ask.topic(f"t{number}", 2 if fact.startswith("partition") else 1)
        frame = ask.spark.range(1).selectExpr(*columns)
        _write(ask, fact, frame, topic, topic=topic)


def topics_of_a_write(ask: Asker) -> None:
    """Column `topic` and option `topic`."""
    topic, other = ask.topic("orders"), ask.topic("returns")
    row = ask.spark.range(1)
    both = row.selectExpr("'x' value", f"'{topic}' topic")
    _write(ask, "column", both, topic)
    _write(ask, "option goes before the column", both, other, topic=other)
    _write(ask, "option with blanks", row.selectExpr("'x' value"), topic, topic=f" {topic} ")
    _write(ask, "neither", row.selectExpr("'x' value"), topic)
    _write(ask, "column null", row.selectExpr("'x' value", "cast(null as string) topic"), topic)
    _write(ask, "column as number", row.selectExpr("'x' value", "1 topic"), topic)
    number = row.selectExpr("'x' value", "1 topic")
    _write(ask, "column as number, not looked at", number, other, topic=other)
    _write(ask, "topic that isn't there", row.selectExpr("'x' value"), topic, topic="nowhere")


def save_modes(ask: Asker) -> None:
    """What each save mode does."""
    frame = ask.spark.range(1).selectExpr("'x' value")
    for mode in ("append", "error", "errorifexists", "ignore", "overwrite"):
        topic = ask.topic(mode)
        _write(ask, mode, frame, topic, mode, topic=topic)
    topic = ask.topic("none")
    save = frame.write.format(ask.side.name).options(**ask.side.address, topic=topic).save
    ask.ask("no mode", save, lambda _: _written(ask, topic))


def partitions_of_keys(ask: Asker) -> None:
    """Where keyed rows go."""
    topic = ask.topic("orders", 5)
    frame = ask.spark.range(40).selectExpr("concat('key ', id) key", "'x' value")
    _append(ask, frame, "append", topic=topic)
    taken = ask.read(subscribe=topic).selectExpr("string(key) key", "partition").collect()
    ask.note("of each key", sorted((row.key, row.partition) for row in taken))


def output_modes(ask: Asker) -> None:
    """A streaming aggregate in each output mode."""
    for mode in ("append", "update", "complete"):
        topic, target = ask.topic(f"from-{mode}", 1, 3), ask.topic(f"to-{mode}")
        counts = _stream(ask, topic).groupBy("topic").count().selectExpr("string(count) value")
        frame = counts if mode != "append" else _stream(ask, topic).select("value")
        _copy(ask, mode, frame, target, ask.checkpoint(), mode=mode)


def replayed_batches(ask: Asker) -> None:
    """A batch that was written, and whose end Spark didn't note."""
    topic, target = ask.topic("orders", 1, 3), ask.topic("copies")
    checkpoint = ask.checkpoint()
    frame = _stream(ask, topic).select("key", "value")
    _copy(ask, "first run", frame, target, checkpoint)
    forget_last_commit(checkpoint)
    _copy(ask, "replayed", frame, target, checkpoint)


def _stream(ask: Asker, topic: str) -> DataFrame:
    return ask.stream_reader(subscribe=topic, startingOffsets="earliest").load()


def _copy(
    ask: Asker, fact: str, frame: DataFrame, target: str, checkpoint: Path, *, mode: str = "append"
) -> None:
    writer = frame.writeStream.format(ask.side.name).options(**ask.side.address, topic=target)
    writer = writer.option("checkpointLocation", str(checkpoint)).outputMode(mode)
    start = writer.trigger(availableNow=True).start
    ask.ask(fact, lambda: ended(start()), lambda _: ask.read(subscribe=target).count())


def _write(
    ask: Asker, fact: str, frame: DataFrame, target: str, mode: str = "append", **options: str
) -> None:
    save = partial(_append, ask, frame, mode, **options)
    ask.ask(fact, save, lambda _: _written(ask, target))


def _append(ask: Asker, frame: DataFrame, mode: str, **options: str) -> None:
    frame.write.format(ask.side.name).options(**ask.side.address, **options).mode(mode).save()


def _written(ask: Asker, topic: str) -> list[dict[str, Any]]:
    frame = ask.read(subscribe=topic, includeHeaders=True)
    text = frame.selectExpr("string(key) key", "string(value) value", "partition", "headers")
    return [
        {name: value for name, value in row.asDict(recursive=True).items() if value is not None}
        for row in text.collect()
    ]
