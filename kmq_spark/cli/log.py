"""`kmq log`: print the commit log itself, one commit per line."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import islice
from typing import Any

from kmq_spark.cli.command import Command, argument, count
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output, plain
from kmq_storage.format.entries import Entry, RecordsEntry


def _log(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, read_only=True) as store:
        topics = {info.topic_id.bytes: info.name for info in store.topics()}
        for commit in islice(store.commits(arguments.start), arguments.max):
            entries = [_describe_entry(entry, topics) for entry in commit.entries]
            fact = {"lsn": commit.lsn, "time": commit.time, "entries": entries}
            output.stream(fact, _line(fact).encode())


def _describe_entry(entry: Entry, topics: Mapping[bytes, str]) -> dict[str, Any]:
    """Return the fields of an entry; a topic by its name, or by its id once it is deleted."""
    kind = type(entry).__name__.removesuffix("Entry")
    facts: dict[str, Any] = {"kind": re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()}
    for name in _names(entry):
        value = getattr(entry, name)
        if name == "topic_id":
            facts["topic"] = topics.get(value, value.hex())
        elif name == "runs":
            facts[name] = [(topics.get(of, of.hex()), *places) for of, *places in value]
        else:
            facts[name] = value.hex() if isinstance(value, bytes) else value
    return facts


def _names(entry: Entry) -> Iterable[str]:
    return entry._fields if isinstance(entry, RecordsEntry) else (f.name for f in fields(entry))


def _line(fact: Mapping[str, Any]) -> str:
    entries = [
        " ".join(
            value if name == "kind" else f"{name}={json.dumps(plain(value))}"
            for name, value in entry.items()
        )
        for entry in fact["entries"]
    ]
    return f"{fact['lsn']}  {plain(fact['time'])}  {'; '.join(entries)}"


COMMANDS = (
    Command(
        "log",
        "print the commit log of the store, one commit per line",
        _log,
        (
            argument(
                "--from",
                dest="start",
                type=count,
                metavar="LSN",
                help="begin at this commit (the oldest in the log)",
            ),
            argument("--max", type=count, metavar="N", help="end after this many commits"),
        ),
    ),
)
