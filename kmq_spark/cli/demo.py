"""`kmq demo`: flights from a producer through a store into Spark and exactly once out again."""

from __future__ import annotations

from argparse import Namespace

from kmq_spark.cli.command import Command, argument
from kmq_spark.cli.output import Output


def _demo(arguments: Namespace, output: Output) -> int:
    # The demo needs Spark and a plotting library; the other commands must do without.
    from kmq_spark.demo.run import main

    return main(arguments.store, arguments.json, arguments.quick)


COMMANDS = (
    Command(
        "demo",
        "run 336,776 flights through a store and Spark, with a crash in the middle",
        _demo,
        (argument("--quick", action="store_true", help="fewer flights"),),
    ),
)
