"""Scenarios of batch reads, after KafkaRelationSuite and the suites of ranges and offsets."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from tests.spark.parity.asking import Asker, rows
from tests.spark.parity.sides import BEGIN_MS, Record


def columns_and_types(ask: Asker) -> None:
    """The columns of a read, with and without headers."""
    topic = ask.topic()
    for headers in (False, True):
        schema = ask.read(subscribe=topic, includeHeaders=headers).schema
        ask.note(f"includeHeaders={headers}", schema.simpleString())
        ask.note(f"nullable, includeHeaders={headers}", {field.nullable for field in schema})
    schema = ask.stream_reader(subscribe=topic).load().schema
    ask.note("of a stream", schema.simpleString())
    ask.ask(
        "schema of the user",
        lambda: ask.reader(subscribe=topic).schema("value string").load(),
        DataFrame.count,
    )


def contents_of_records(ask: Asker) -> None:
    """Nulls, timestamps and headers as they come out."""
    topic = ask.topic()
    pair: list[tuple[str, bytes | None]] = [("h", b"1"), ("h", b"2")]
    sent = [
        Record(b"value", b"key", at=1),
        Record(None, b"key", at=2),
        Record(b"value", None, at=3),
        Record(None, None, at=4),
        Record(b"", b"", at=5),
        Record(b"two headers", headers=pair),
        Record(b"null in a header", headers=[("h", None)]),
    ]
    ask.side.send(topic, sent)
    frame = ask.read(subscribe=topic, includeHeaders=True)
    for row in frame.orderBy("offset").collect():
        what = {name: _plain(value) for name, value in row.asDict().items() if name != "topic"}
        ask.note(f"record {row.offset}", what)


def subscriptions(ask: Asker) -> None:
    """The three ways to say which topics."""
    topic = ask.topic("orders", 2, 3)
    other = ask.topic("returns", 1, 2)
    read = {
        "two topics with blanks": {"subscribe": f" {topic} , {other},"},
        "topic that isn't there": {"subscribe": f"{topic},nowhere"},
        "pattern for the whole name": {"subscribePattern": f"{topic[:-6]}(orders|returns)"},
        "pattern for the beginning of the name": {"subscribePattern": topic[:-3]},
        "pattern that fits none": {"subscribePattern": "nothing-.*"},
        "pattern in words of Java": {"subscribePattern": r"^\p{Lower}+\.orders$"},
        "assign": {"assign": json.dumps({topic: [0], other: [0]})},
        "assign with a partition that isn't there": {"assign": json.dumps({topic: [0, 7]})},
        "assign with nothing": {"assign": "{}"},
    }
    for fact, options in read.items():
        ask.ask(fact, partial(ask.read, **options), rows)


def offsets_as_bounds(ask: Asker) -> None:
    """Words and JSON."""
    topic = ask.topic("orders", 2, 10)
    ask.send(topic, 4, partition=1)
    both = {
        "defaults": {},
        "words, upper case": {"startingOffsets": "EARLIEST", "endingOffsets": "Latest"},
        "numbers": {"startingOffsets": {0: 2, 1: 1}, "endingOffsets": {0: 7, 1: 3}},
        "numbers with a point": {"startingOffsets": {0: 2.0, 1: 1.0}},
        "-2 and -1": {"startingOffsets": {0: -2, 1: 3}, "endingOffsets": {0: 5, 1: -1}},
        "start is the end": {"startingOffsets": {0: 10, 1: 4}},
        "one partition not named in the start": {"startingOffsets": {0: 2}},
        "one partition not named in the end": {"endingOffsets": {0: 2}},
        "one partition too many": {"startingOffsets": {0: 2, 1: 0, 2: 0}},
        "start above end": {"startingOffsets": {0: 5, 1: 0}, "endingOffsets": {0: 3, 1: 1}},
        "start above what there is": {"startingOffsets": {0: 11, 1: 0}},
        "end above what there is": {"endingOffsets": {0: 99, 1: 4}},
        "start latest": {"startingOffsets": "latest"},
        "start -1": {"startingOffsets": {0: -1, 1: 0}},
        "end earliest": {"endingOffsets": "earliest"},
        "end -2": {"endingOffsets": {0: -2, 1: 0}},
    }
    _read_with(ask, topic, both)


def times_as_bounds(ask: Asker) -> None:
    """Instants of all partitions, of single ones, and which bound counts."""
    topic = ask.topic("orders", 2, 10)
    ask.send(topic, 4, partition=1)
    far = BEGIN_MS + 3_600_000
    early, late = BEGIN_MS + 1_500, BEGIN_MS + 3_000
    both = {
        "from and to one instant": {"startingTimestamp": early, "endingTimestamp": late},
        "instant of a record": {"startingTimestamp": late},
        "by partition": {
            "startingOffsetsByTimestamp": {0: early, 1: late},
            "endingOffsetsByTimestamp": {0: late, 1: far},
        },
        "from a time to an offset": {
            "startingOffsetsByTimestamp": {0: early, 1: early},
            "endingOffsets": {0: 5, 1: -1},
        },
        "start after the last record": {"startingTimestamp": far},
        "start after the last record, strategy latest": {
            "startingTimestamp": far,
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "end after the last record": {"endingTimestamp": far},
        "end before the first record": {"endingTimestamp": BEGIN_MS - 1},
        "start after end": {"startingTimestamp": late, "endingTimestamp": early},
        "instant before offsets by time": {
            "startingTimestamp": late,
            "startingOffsetsByTimestamp": {0: early, 1: early},
            "startingOffsets": {0: 0, 1: 0},
        },
        "offsets by time before offsets": {
            "startingOffsetsByTimestamp": {0: early, 1: early},
            "startingOffsets": {0: 0, 1: 0},
        },
        "one partition not named": {"startingOffsetsByTimestamp": {0: early}},
        "start -1": {"startingTimestamp": -1},
        "end -1": {"endingOffsetsByTimestamp": {0: -1, 1: late}},
    }
    _read_with(ask, topic, both)


def bad_options(ask: Asker) -> None:
    """What is refused, and when: in batches and in streams."""
    topic = ask.topic("orders", 1, 3)
    for fact, changed in BAD.items():
        options = {"subscribe": topic, **changed}
        ask.ask(f"batch: {fact}", partial(ask.read, **options), rows)
        ask.ask_stream(f"stream: {fact}", ask.checkpoint(), **options)


def tasks_of_a_read(ask: Asker) -> None:
    """How many tasks there are, after the range calculator's suite."""
    topic = ask.topic("orders", 3, 100)
    ask.send(topic, 100, partition=1)
    ask.send(topic, 10, partition=2)
    limits: list[dict[str, int]] = [
        *({"minPartitions": n} for n in (1, 3, 4, 6, 20)),
        *({"maxRecordsPerPartition": n} for n in (1000, 100, 50, 33, 7)),
        {"minPartitions": 4, "maxRecordsPerPartition": 60},
        {"minPartitions": 9, "maxRecordsPerPartition": 60},
    ]
    for options in ({}, *limits):
        frame = ask.read(subscribe=topic, **options)
        name = ", ".join(f"{key}={value}" for key, value in options.items()) or "no option"
        ask.note(name, f"{frame.rdd.getNumPartitions()} tasks")
        ask.note(f"rows, {name}", rows(frame))


def one_frame_used_twice(ask: Asker) -> None:
    """A frame united with itself, and used again when there is more."""
    topic = ask.topic("orders", 1, 3)
    frame = ask.read(subscribe=topic)
    ask.note("united with itself", frame.union(frame).count())
    ask.send(topic, 2)
    ask.note("the same frame, two records later", frame.count())
    ask.note("a new frame, two records later", ask.read(subscribe=topic).count())
    ask.side.trim(topic, 0, 4)
    ask.ask("the same frame, after its start was trimmed", lambda: frame, DataFrame.count)
    ask.note("a new frame, after its start was trimmed", rows(ask.read(subscribe=topic)))


def empty_topics(ask: Asker) -> None:
    """Nothing to read."""
    topic = ask.topic("orders", 2)
    ask.note("defaults", ask.read(subscribe=topic).count())
    ask.ask_stream("a stream from earliest", ask.checkpoint(), subscribe=topic)
    start = {"startingOffsets": json.dumps({topic: {"0": 1, "1": 0}})}
    ask.ask("start 1", partial(ask.read, subscribe=topic, **start), rows)


def views_in_sql(ask: Asker) -> None:
    """CREATE TEMPORARY VIEW."""
    topic = ask.topic("orders", 1, 3)
    options = {**ask.side.address, "SUBSCRIBE": topic}
    listed = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    ask.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW parity USING {ask.side.name} OPTIONS ({listed})"
    )
    ask.note("rows", ask.spark.sql("SELECT count(*), max(offset) FROM parity").collect())


def _read_with(ask: Asker, topic: str, cases: dict[str, dict[str, Any]]) -> None:
    for fact, bounds in cases.items():
        options = {
            name: json.dumps({topic: value}) if isinstance(value, dict) else value
            for name, value in bounds.items()
        }
        ask.ask(fact, partial(ask.read, subscribe=topic, **options), rows)


def _plain(value: object) -> object:
    if isinstance(value, bytearray | bytes):
        return bytes(value)
    if isinstance(value, list):
        return [(each.key, _plain(each.value)) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


BAD: dict[str, dict[str, Any]] = {
    "no subscription": {"subscribe": ""},
    "two subscriptions": {"subscribePattern": "x"},
    "minPartitions a": {"minPartitions": "a"},
    "minPartitions 1.0": {"minPartitions": "1.0"},
    "minPartitions 0": {"minPartitions": "0"},
    "minPartitions -1": {"minPartitions": "-1"},
    "maxRecordsPerPartition 0": {"maxRecordsPerPartition": "0"},
    "maxOffsetsPerTrigger a": {"maxOffsetsPerTrigger": "a"},
    "maxOffsetsPerTrigger 0": {"maxOffsetsPerTrigger": "0"},
    "minOffsetsPerTrigger a": {"minOffsetsPerTrigger": "a"},
    "min above max": {"minOffsetsPerTrigger": 20, "maxOffsetsPerTrigger": 15},
    "maxTriggerDelay soon": {"minOffsetsPerTrigger": 1, "maxTriggerDelay": "soon"},
    "failOnDataLoss maybe": {"failOnDataLoss": "maybe"},
    "includeHeaders maybe": {"includeHeaders": "maybe"},
    "startingOffsets middle": {"startingOffsets": "middle"},
    "startingOffsets broken": {"startingOffsets": '{"orders":'},
    "startingTimestamp noon": {"startingTimestamp": "noon"},
    "startingOffsetsByTimestamp broken": {"startingOffsetsByTimestamp": "{"},
    "strategy guess": {"startingOffsetsByTimestampStrategy": "guess"},
    "endingOffsets latest": {"endingOffsets": "latest"},
    "endingTimestamp": {"endingTimestamp": BEGIN_MS + 1_000},
    "endingOffsetsByTimestamp broken": {"endingOffsetsByTimestamp": "{"},
    "an option nobody knows": {"minPartition": "2"},
    "option kafka.key.deserializer": {"kafka.key.deserializer": "x"},
    "option kafka.auto.offset.reset": {"kafka.auto.offset.reset": "latest"},
    "option kafka.isolation.level": {"kafka.isolation.level": "read_committed"},
    "option kafka.group.id": {"kafka.group.id": "billing"},
    "option groupIdPrefix": {"groupIdPrefix": "billing"},
}
