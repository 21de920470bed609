"""What a command is: a name, its arguments, and a function; and the error of a wrong call."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kmq_spark.cli.output import Output


class UsageError(Exception):
    """The command line is wrong; the command ends with 2."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a command, as argparse takes it."""

    names: tuple[str, ...]
    settings: dict[str, Any]


def argument(*names: str, **settings: Any) -> Argument:
    """Describe an argument with the words of `ArgumentParser.add_argument`."""
    return Argument(names, settings)


@dataclass(frozen=True, slots=True)
class Command:
    """A command: `run` prints to the output and returns the exit code (None is 0)."""

    #: One word, or two for a command of a family, as in "topic create".
    name: str
    summary: str
    run: Callable[[Namespace, Output], int | None]
    arguments: tuple[Argument, ...] = ()
