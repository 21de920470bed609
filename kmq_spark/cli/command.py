"""What a command is: a name, its arguments, and a function; and the error of a wrong call."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from kmq_spark.cli.output import Output
from kmq_storage.errors import AlreadyExistsError, InvalidRequestError
from kmq_storage.names import check_name

Made = TypeVar("Made")


class UsageError(Exception):
    """The command line is wrong; the command ends with 2."""


def count(text: str) -> int:
    """A whole number from 0 on, as `argparse` asks for one."""
    return _whole(text, 0)


def positive(text: str) -> int:
    """A whole number from 1 on, as `argparse` asks for one."""
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    with suppress(ValueError):
        if (number := int(text)) >= least:
            return number
    raise ArgumentTypeError(f"must be a whole number from {least} on, not {text!r}")


def place(text: str) -> str:
    """A store that is named: an empty one is a shell's unset variable, not that of KMQ_STORE."""
    if not text:
        raise ArgumentTypeError("it is empty: name a store, or leave it out")
    return text


def new_name(kind: str) -> Callable[[str], str]:
    """What takes a name for a new thing of a kind, as `argparse` asks for one."""

    def checked(text: str) -> str:
        try:
            return check_name(kind, text)
        except InvalidRequestError as error:
            raise ArgumentTypeError(str(error)) from None

    return checked


def create_or_keep(create: Callable[..., Made], *, keep: bool) -> tuple[Made, bool]:
    """What a call makes that has the option `exist_ok`, and whether it was there."""
    try:
        return create(exist_ok=False), False
    except AlreadyExistsError as error:
        if not keep:
            told = f"{error} --if-not-exists keeps it."
            raise AlreadyExistsError(told, **error.context) from error
        return create(exist_ok=True), True


def seconds(text: str) -> float:
    """A time in seconds, as `argparse` asks for one."""
    with suppress(ValueError):
        if 0 <= (number := float(text)) < math.inf:
            return number
    raise ArgumentTypeError(f"must be seconds from 0 on, as 3600, not {text!r}")


def instant(text: str) -> datetime:
    """An instant with its zone, as `argparse` asks for one."""
    try:
        when = datetime.fromisoformat(text)
        if when.tzinfo is None:
            raise ValueError("it has no zone")
        return when.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ArgumentTypeError(
            f"must be an instant as 2026-01-31T12:00:00+00:00, not {text!r} ({error})"
        ) from None


def pair(text: str) -> tuple[str, str]:
    """A name and a value, as `argparse` asks for them."""
    name, is_given, value = text.partition("=")
    if not is_given:
        raise ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name, value


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a command, as argparse takes it."""

    names: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def key(self) -> str:
        """What `argparse` calls the value of an option."""
        return self.names[0].removeprefix("--").replace("-", "_")

    @property
    def is_list(self) -> bool:
        """Whether it is as many words as are given, which stand in no option."""
        return self.settings.get("nargs") in ("*", "+") and not self.names[0].startswith("-")


def given(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Those of these arguments that stand in the command line, for a call that has defaults."""
    values = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


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
