"""`kmq produce`: send values from the command line, or every line of the standard input."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import islice

from kmq_spark.cli.command import Command, UsageError, argument
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output

_LINES_PER_BATCH = 1_000


def _produce(arguments: Namespace, output: Output) -> None:
    if arguments.separator == "":
        raise UsageError("--separator must not be empty")
    lines = _values(arguments)
    sent = 0
    with open_store(arguments, create=True) as store, store.producer() as producer:
        # Each batch is waited for, so that a failure names itself before more is read.
        while batch := list(islice(lines, _LINES_PER_BATCH)):
            pairs = [_split(line, arguments) for line in batch]
            keys, values = zip(*pairs, strict=True)
            producer.send_batch(arguments.topic, values, keys).result()
            sent += len(batch)
    fact = {"topic": arguments.topic, "records": sent}
    output.fact(fact, f"sent {sent} record(s) to {arguments.topic}")


def _values(arguments: Namespace) -> Iterator[bytes]:
    if arguments.value:
        return map(os.fsencode, arguments.value)  # as it was typed, UTF-8 or not
    return (line.rstrip(b"\r\n") for line in sys.stdin.buffer)


def _split(line: bytes, arguments: Namespace) -> tuple[bytes | None, bytes]:
    if arguments.separator is None:
        return (None if arguments.key is None else os.fsencode(arguments.key)), line
    key, found, value = line.partition(os.fsencode(arguments.separator))
    return (key, value) if found else (None, line)


COMMANDS = (
    Command(
        "produce",
        "send the values given, or every line of the standard input",
        _produce,
        (
            argument("topic", metavar="TOPIC", help="where to"),
            argument("value", metavar="VALUE", nargs="*", help="what (or lines of stdin)"),
            argument("--key", help="the key of all of them"),
            argument("--separator", metavar="TEXT", help="ends the key within each line"),
        ),
    ),
)
