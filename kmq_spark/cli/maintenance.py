"""`kmq maintain` and `kmq stats`: maintain a store, and show what it is made of."""

from __future__ import annotations

import dataclasses
import sys
from argparse import Namespace

import kmq_spark as kmq
from kmq_spark.cli.command import Command, argument, seconds
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output


def _maintain(arguments: Namespace, output: Output) -> None:
    with open_store(arguments) as store:
        while True:
            try:
                _report(store.maintain(), output)
            except kmq.KmqError as error:
                if not (arguments.watch and error.retryable):
                    raise
                print(f"kmq: {error}; looking again", file=sys.stderr, flush=True)
            if not arguments.watch:
                return
            store.log.environment.sleep(arguments.interval)


def _report(report: kmq.MaintainReport, output: Output) -> None:
    at = f"checkpoint at commit {report.checkpoint.lsn}"
    text = (
        f"sealed {report.sealed.rows} records into {report.sealed.segments} segment(s), "
        f"trimmed {report.trimmed.rows} records, "
        f"compacted {report.compacted.before} segment(s) into {report.compacted.after}, "
        f"{at if report.checkpoint.lsn else 'no checkpoint yet'}, "
        f"deleted {report.collected.files} file(s) of {report.collected.bytes} bytes"
    )
    output.fact(dataclasses.asdict(report), text)


def _stats(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, read_only=True) as store:
        stats = store.stats()
    lines = [
        f"{kind:12} {stats.files[kind]:8} files {size:16} bytes"
        for kind, size in stats.bytes.items()
    ]
    lines += [
        f"shared       {stats.shared_files:8} files {stats.shared_bytes:16} bytes, of these",
        f"records      {stats.rows} of {stats.payload} bytes",
        f"small        {stats.small_segments} segments",
        f"garbage      {stats.garbage_files} files of {stats.garbage_bytes} bytes",
        f"written      {stats.write_amplification:.2f} times",
    ]
    lines += [f"damage       {stats.damage}"] if stats.damage else []
    output.fact(dataclasses.asdict(stats), "\n".join(lines))


COMMANDS = (
    Command(
        "maintain",
        "do the maintenance that is due: trim, seal, compact, checkpoint, collect",
        _maintain,
        (
            argument("--watch", action="store_true", help="repeat until interrupted"),
            argument(
                "--interval",
                type=seconds,
                default=10.0,
                metavar="SECONDS",
                help="with --watch: time in between (10)",
            ),
        ),
    ),
    Command("stats", "show bytes by kind, segments, garbage and write amplification", _stats),
)
