"""`kmq log find`, `replay` and `trace`: single records, by their content and by their place."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict
from typing import Any

import kmq_spark as kmq
from kmq_spark.cli.command import Command, argument, count, instant, pair
from kmq_spark.cli.consume import fact_of, value_of
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output
from kmq_spark.client.finding import found, wanted_of
from kmq_spark.client.records.record_values import records_of
from kmq_spark.openmessaging.message import place_of
from kmq_storage.names import queue_log


def _find(arguments: Namespace, output: Output) -> None:
    topic, bounds, only = _topic(arguments), (arguments.since, arguments.until), None
    wanted = wanted_of(arguments.key, arguments.header, dict(arguments.property), *bounds)
    if arguments.id is not None:
        only, offset = _place(topic, arguments)
        bounds = ({only: offset}, {only: offset + 1})
    with open_store(arguments, read_only=True) as store:
        chosen = found(store.log, topic, wanted, bounds, arguments.max, only=only)
        for part in chosen[1]:
            for record in records_of(part):
                output.stream(fact_of(record), _line(record))


def _topic(arguments: Namespace) -> str:
    """The topic that was named, or the own log of the queue."""
    topic: str = arguments.topic
    return queue_log(topic) if arguments.queue else topic


def _place(topic: str, arguments: Namespace) -> tuple[int, int]:
    """The partition and offset of the id that was asked for."""
    named, partition, offset = place_of(arguments.id) or (None, 0, 0)
    if named != topic or arguments.since or arguments.until:
        raise kmq.InvalidRequestError(
            f"--id must be {topic}:PARTITION:OFFSET, without --since and --until, not "
            f"{arguments.id!r}",
            option="id",
        )
    return partition, offset


def _line(record: kmq.Record) -> bytes:
    place = f"{record.topic}-{record.partition}:{record.offset}  {record.timestamp.isoformat()}"
    return b"  ".join([place.encode(), record.key or b"-", value_of(record)])


def _replay(arguments: Namespace, output: Output) -> None:
    with open_store(arguments) as store:
        sent = store.replay(
            arguments.topic,
            None if arguments.queue else arguments.target,
            queue=arguments.target if arguments.queue else None,
            key=arguments.key,
            headers=arguments.header,
            properties=dict(arguments.property),
            start=arguments.since,
            end=arguments.until,
            group=arguments.group,
        )
    fact = {"topic": arguments.topic, "target": arguments.target, "records": sent}
    output.fact(fact, f"sent {sent} record(s) of {arguments.topic} to {arguments.target}")


def _trace(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, read_only=True) as store:
        steps = store.trace(_topic(arguments), arguments.partition, arguments.offset)
    output.rows([asdict(step) for step in steps])


def _property(text: str) -> tuple[str, Any]:
    """Return a property: a value that is no number and no truth value is text."""
    name, value = pair(text)
    try:
        parsed = json.loads(value)
    except ValueError:
        return name, value
    return name, parsed if isinstance(parsed, bool | int | float | str) else value


_TOPIC = argument("topic", metavar="TOPIC", help="the topic")
_OF_QUEUE = argument(
    "--queue", action="store_true", help="TOPIC is a queue: what was sent to it, or is dead there"
)
_WANTED = (
    argument("--key", help="only records with this key"),
    argument(
        "--property",
        type=_property,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only records with this property: 42, 4.2, true or text; '\"42\"' is text "
        "(may be repeated)",
    ),
    argument(
        "--header",
        type=pair,
        action="append",
        metavar="NAME=VALUE",
        help="only records with this header (may be repeated)",
    ),
    argument(
        "--since",
        type=instant,
        metavar="INSTANT",
        help="only from this time on, as 2026-01-31T12:00:00+00:00",
    ),
    argument("--until", type=instant, metavar="INSTANT", help="only before this time"),
)

COMMANDS = (
    Command(
        "log find",
        "print the records of a topic with a key, header or property, or of a time",
        _find,
        (
            _TOPIC,
            _OF_QUEUE,
            *_WANTED,
            argument(
                "--id",
                metavar="TOPIC:PARTITION:OFFSET",
                help="only the record with this message id of OpenMessaging, which is its place",
            ),
            argument("--max", type=count, default=100, metavar="N", help="print at most N (100)"),
        ),
    ),
    Command(
        "log replay",
        "send records, chosen as for find, to another topic or to a queue",
        _replay,
        (
            _TOPIC,
            argument("target", metavar="TARGET", help="the topic or queue to send to"),
            argument("--queue", action="store_true", help="TARGET is a queue"),
            *_WANTED,
            argument(
                "--group",
                metavar="NAME",
                help="send each record once: continue at the offsets of this group",
            ),
        ),
    ),
    Command(
        "log trace",
        "print what happened to a record: sent, read by groups, sealed, trimmed",
        _trace,
        (
            _TOPIC,
            argument(
                "partition", type=count, metavar="PARTITION", help="the partition of the record"
            ),
            argument("offset", type=count, metavar="OFFSET", help="the offset of the record"),
            _OF_QUEUE,
        ),
    ),
)
