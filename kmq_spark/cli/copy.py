"""`kmq copy`: copy a store, or some of its topics, to another place."""

from __future__ import annotations

import dataclasses
from argparse import Namespace

import kmq_spark as kmq
from kmq_spark.cli.command import Command, argument
from kmq_spark.cli.output import Output
from kmq_storage.copying import copy_topics


def _copy(arguments: Namespace, output: Output) -> None:
    with (
        kmq.open(arguments.source, create=False, read_only=True) as source,
        kmq.open(arguments.target, maintenance=False) as target,
    ):
        report = copy_topics(source.log, target.log, arguments.topic)
    text = (
        f"copied {report.rows} records of {report.topics} topic(s) into {report.segments} "
        f"segment(s) of {report.bytes} bytes"
    )
    output.fact(dataclasses.asdict(report), text)


COMMANDS = (
    Command(
        "copy",
        "copy a store or topics to another store; goes on where it was interrupted",
        _copy,
        (
            argument("source", metavar="SOURCE", help="the store to read"),
            argument("target", metavar="TARGET", help="the store to write; made when missing"),
            argument("--topic", action="append", help="only this topic; may be repeated"),
        ),
    ),
)
