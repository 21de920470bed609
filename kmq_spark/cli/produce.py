"""`kmq produce`: send values from the command line, or every line of the standard input."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future

import kmq_spark
from kmq_spark.cli.command import Command, UsageError, argument
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output

#: The most records that are on their way while more are read.
_PENDING_MAX = 1_000


def _produce(arguments: Namespace, output: Output) -> None:
    if arguments.separator == "":
        raise UsageError("--separator must not be empty")
    if arguments.separator is not None and arguments.key is not None:
        raise UsageError("give --key or --separator, not both: each says what the key is")
    sent = 0
    pending: deque[Future[kmq_spark.RecordMetadata]] = deque()
    with open_store(arguments) as store, store.producer() as producer:
        store.describe_topic(arguments.topic)  # an unknown topic is refused before input is read
        for line in _values(arguments):
            key, value = _split(line, arguments)
            pending.append(producer.send(arguments.topic, value, key))
            # An error is raised before much more is read.
            while pending and (len(pending) > _PENDING_MAX or pending[0].done()):
                sent += 1
                _check_first(pending, sent)
        while pending:
            sent += 1
            _check_first(pending, sent)
    fact = {"topic": arguments.topic, "records": sent}
    output.fact(fact, f"sent {sent} record(s) to {arguments.topic}")


def _check_first(pending: deque[Future[kmq_spark.RecordMetadata]], number: int) -> None:
    """Raise the error of a value that was not stored, with its number; those before are stored."""
    try:
        pending.popleft().result()
    except kmq_spark.KmqError as error:
        stored = sum(each.exception() is None for each in pending)
        behind = f"; {stored} value(s) behind it are stored" if stored else ""
        raise type(error)(f"value {number}: {error}{behind}", **error.context) from error


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
        "send the given values, or each line of the standard input",
        _produce,
        (
            argument("topic", metavar="TOPIC", help="the topic"),
            argument(
                "value",
                metavar="VALUE",
                nargs="*",
                help="the values; without any, each line of the standard input",
            ),
            argument("--key", help="the key of all records"),
            argument(
                "--separator",
                metavar="TEXT",
                help="the key of each value ends before TEXT, and its value begins behind it",
            ),
        ),
    ),
)
