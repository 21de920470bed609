"""`kmq demo`: flights through a store and Spark, exactly once; `kmq demo orders`: Kmq v2."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict

from kmq_spark.cli.command import Command, argument
from kmq_spark.cli.output import Output


def _demo(arguments: Namespace, output: Output) -> int:
    # Flights need Spark and a plotting library; the other commands must do without.
    if arguments.which == "orders":
        return _orders(arguments, output)
    from kmq_spark.demo.run import main

    return main(arguments.store, arguments.json, arguments.quick)


def _orders(arguments: Namespace, output: Output) -> int:
    from kmq_spark.demo.orders import in_words, main

    told = sys.stderr if arguments.json else sys.stdout
    report = main(arguments.store, keys=sys.stdin, out=told)
    output.fact(asdict(report), in_words(report))
    return 0 if report.in_order else 1


COMMANDS = (
    Command(
        "demo",
        "send 336,776 flights through a store and Spark, with a crash in the middle; or orders",
        _demo,
        (
            argument(
                "which",
                nargs="?",
                choices=("flights", "orders"),
                default="flights",
                help="flights (the default), or orders: a thousand of them, and pairs in "
                "transactions, through kmq_spark.v2",
            ),
            argument("--quick", action="store_true", help="send fewer flights"),
        ),
    ),
)
