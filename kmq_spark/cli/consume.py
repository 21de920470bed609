"""`kmq consume`: print the records of topics, up to their end or for ever."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import kmq_spark as kmq
from kmq_spark.cli.command import Command, argument, count
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output, plain

_BATCH = 500
_FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "properties")


def _consume(arguments: Namespace, output: Output) -> None:
    # A group's offsets are written to the store; without one nothing is.
    with (
        open_store(arguments, read_only=arguments.group is None) as store,
        store.consumer(
            arguments.group, topics=arguments.topic, auto_offset_reset=arguments.start
        ) as consumer,
    ):
        for records in _batches(consumer, arguments):
            for record in records:
                output.stream(fact_of(record), _line(record, arguments.separator))
            # Commit only what the reader of our output has got: nothing is skipped when it ends.
            output.flush()
            if arguments.group is not None:
                consumer.commit()


def _batches(consumer: kmq.Consumer, arguments: Namespace) -> Iterator[list[kmq.Record]]:
    left = arguments.max
    while left is None or left > 0:
        wanted = _BATCH if left is None else min(left, _BATCH)
        records = consumer.consume(wanted, timeout=1.0 if arguments.follow else 0.0)
        if records:
            yield records
        elif not arguments.follow:
            return
        left = None if left is None else left - len(records)


def fact_of(record: kmq.Record) -> dict[str, Any]:
    """Return the members of a record that `--json` prints."""
    return {name: getattr(record, name) for name in _FIELDS}


def value_of(record: kmq.Record) -> bytes:
    """Return the value as bytes: JSON for a record of a typed topic."""
    value = record.value or b""
    return value if isinstance(value, bytes) else json.dumps(plain(value)).encode()


def _line(record: kmq.Record, separator: str | None) -> bytes:
    value = value_of(record)
    return value if separator is None else (record.key or b"") + separator.encode() + value


COMMANDS = (
    Command(
        "consume",
        "print the records of topics, one per line",
        _consume,
        (
            argument("topic", metavar="TOPIC", nargs="+", help="the topics"),
            argument("--group", help="begin at the offsets of this group, and commit to it"),
            argument(
                "--from",
                dest="start",
                choices=["earliest", "latest"],
                default="earliest",
                help="where to begin without committed offsets (earliest)",
            ),
            argument(
                "--follow", action="store_true", help="wait for more records instead of ending"
            ),
            argument("--max", type=count, metavar="N", help="end after this many records"),
            argument("--separator", metavar="TEXT", help="print key, TEXT and value"),
        ),
    ),
)
