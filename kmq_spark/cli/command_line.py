"""From a command line to an exit code: 0, 1 (one clear line on stderr), or 2 (wrong usage)."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kmq_spark.cli.command import Command, UsageError, place
from kmq_spark.cli.output import Output
from kmq_spark.cli.table import COMMANDS, FAMILIES
from kmq_storage.errors import KmqError, NotFoundError

_INTERRUPTED = 130

#: What to do when a command line names what isn't there: often it is spelt otherwise, or not yet.
_WAYS_OUT = {
    "Store": "Is it the right place? `kmq topic create` makes a store there.",
    "Topic": "`kmq topic list` shows which there are, `kmq topic create` makes one.",
    "Queue": "`kmq queue list` shows which there are, `kmq queue create` makes one.",
    "Group": "`kmq group list` shows which there are.",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _have_streams()
    try:
        arguments = _parsed(argv)
    except SystemExit as stop:  # argparse has printed the usage, or the help
        return int(stop.code or 0)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        return _run(arguments)


def _have_streams() -> None:
    """Replace a standard stream that the caller closed by one that leads nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _run(arguments: argparse.Namespace) -> int:
    command: Command = arguments.command
    try:
        code = command.run(arguments, Output(sys.stdout, arguments.json))
        sys.stdout.flush()
        return code or 0
    except UsageError as error:
        return _fail(f"kmq {command.name}: {error}", code=2)
    except BrokenPipeError:
        # Nobody reads our output any more. What is still buffered would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KmqError, OSError) as error:
        return _fail(f"kmq {command.name}: {_with_way_out(error)}", code=1)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _with_way_out(error: KmqError | OSError) -> str:
    told = str(error)
    if not (isinstance(error, NotFoundError) and told.endswith("] doesn't exist.")):
        return told  # it has the way out, where there is one
    return f"{told} {_WAYS_OUT.get(told.partition('[')[0], '')}"


def _fail(message: str, *, code: int) -> int:
    print(" ".join(message.split()), file=sys.stderr)
    return code


def _show_warning(message: Warning | str, *_details: Any) -> None:
    print(f"kmq: warning: {message}", file=sys.stderr)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; words of a list may also follow options, which argparse can't do."""
    arguments, left = _parser().parse_known_args(argv)
    words = left[1:] if left[:1] == ["--"] else left
    if words is left and any(word.startswith("-") and word != "-" for word in words):
        words = []
    lists = [item.names[0] for item in arguments.command.arguments if item.is_list]
    if left and not (lists and words):
        arguments.own.error(f"unrecognized arguments: {' '.join(left)}")
    for name in lists:
        setattr(arguments, name, [*getattr(arguments, name), *words])
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kmq", description="kmq: a message log and queue without a server."
    )
    parser.add_argument("--version", action="version", version=f"kmq {_version()}")
    _add_shared(parser, store=None, as_json=False)
    words = parser.add_subparsers(metavar="command", required=True)
    families = {
        name: words.add_parser(name, help=summary, description=summary).add_subparsers(
            metavar="command", required=True
        )
        for name, summary in FAMILIES.items()
    }
    for command in COMMANDS:
        family, _, word = command.name.rpartition(" ")
        made = _add_command(families[family] if family else words, word, command)
        if any(each.name.startswith(f"{command.name} ") for each in COMMANDS):
            families[word] = made.add_subparsers(metavar="command")
    return parser


def _add_command(owner: Any, word: str, command: Command) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = owner.add_parser(
        word, help=command.summary, description=command.summary
    )
    # Suppressed defaults: the command's own parser must not reset what was given before it.
    _add_shared(parser, store=argparse.SUPPRESS, as_json=argparse.SUPPRESS)
    for item in command.arguments:
        parser.add_argument(*item.names, **item.settings)
    parser.set_defaults(command=command, own=parser)  # its usage names the known arguments
    return parser


def _add_shared(parser: argparse.ArgumentParser, *, store: str | None, as_json: bool | str) -> None:
    told = "path or URL of the store (default: KMQ_STORE)"
    parser.add_argument("--store", type=place, default=store, metavar="URL", help=told)
    parser.add_argument("--json", action="store_true", default=as_json, help="print JSON")


def _version() -> str:
    try:
        return version("kmq-spark")
    except PackageNotFoundError:
        return "(not installed)"
