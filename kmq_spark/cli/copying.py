"""`kmq copy` and `kmq clone`: a store, or some of its topics, at another place."""

from __future__ import annotations

import dataclasses
from argparse import Namespace

import kmq_spark as kmq
from kmq_spark.cli.command import Command, UsageError, argument
from kmq_spark.cli.output import Output
from kmq_storage.copying.topics import copy_topics
from kmq_storage.objects.urls import scheme_of


def _copy(arguments: Namespace, output: Output) -> None:
    if scheme_of(arguments.target) == "memory":
        raise UsageError(
            f"a store in memory ends with this command, so nobody could read {arguments.target}: "
            "name a folder or a bucket"
        )
    with kmq.open(arguments.source, create=False, read_only=True) as source:
        for name in arguments.topic or ():
            source.describe_topic(name)  # before a target is made
        with kmq.open(arguments.target, maintenance=False) as target:
            report = copy_topics(source.log, target.log, arguments.topic)
    text = (
        f"copied {report.rows} records of {report.topics} topic(s) into {report.segments} "
        f"segment(s) of {report.bytes} bytes, and {report.queues} queue(s)"
    )
    output.fact(dataclasses.asdict(report), text)


def _clone(arguments: Namespace, output: Output) -> None:
    report = kmq.clone(arguments.source, arguments.target, read_only=arguments.read_only)
    text = (
        f"cloned commit {report.lsn}: {report.files} file(s) are shared, "
        f"{report.rows} unsealed records were copied"
    )
    output.fact(dataclasses.asdict(report), text)


_SOURCE = argument("source", metavar="SOURCE", help="the store to read")

COMMANDS = (
    Command(
        "copy",
        "copy a store, or some topics, to another store; continues where it was interrupted",
        _copy,
        (
            _SOURCE,
            argument("target", metavar="TARGET", help="the store to write; made when missing"),
            argument("--topic", action="append", help="copy only this topic (may be repeated)"),
        ),
    ),
    Command(
        "clone",
        "make a store that shares the sealed records of another, and changes on its own",
        _clone,
        (
            _SOURCE,
            argument(
                "target",
                metavar="TARGET",
                help="the store to make, on the same disk or in the same bucket",
            ),
            argument("--read-only", action="store_true", help="the clone takes no writes"),
        ),
    ),
)
