"""A command: its name, its arguments and its function; and the types of arguments."""

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
    """A whole number from 0 on, as a type for `argparse`."""
    return _whole(text, 0)


def positive(text: str) -> int:
    """A whole number from 1 on, as a type for `argparse`."""
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    with suppress(ValueError):
        if (number := int(text)) >= least:
            return number
    raise ArgumentTypeError(f"must be a whole number from {least} on, not {text!r}")


def place(text: str) -> str:
    """Return the name of a store; an empty one is refused, as that of an unset shell variable."""
    if not text:
        raise ArgumentTypeError("it is empty: name a store, or leave --store out")
    return text


def new_name(kind: str) -> Callable[[str], str]:
    """Return the type, for `argparse`, of a name for a new topic, queue, ..."""

    def checked(text: str) -> str:
        try:
            return check_name(kind, text)
        except InvalidRequestError as error:
            raise ArgumentTypeError(str(error)) from None

    return checked


def create_or_keep(create: Callable[..., Made], *, keep: bool) -> tuple[Made, bool]:
    """Return what `create` makes, or keeps, and whether it existed."""
    try:
        return create(exist_ok=False), False
    except AlreadyExistsError as error:
        if not keep:
            told = f"{error} --if-not-exists keeps it."
            raise AlreadyExistsError(told, **error.context) from error
        return create(exist_ok=True), True


def seconds(text: str) -> float:
    """Seconds from 0 on, as a type for `argparse`."""
    with suppress(ValueError):
        if 0 <= (number := float(text)) < math.inf:
            return number
    raise ArgumentTypeError(f"must be seconds from 0 on, as 3600, not {text!r}")


def instant(text: str) -> datetime:
    """An instant with its zone, as a type for `argparse`."""
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
    """A name and a value, as a type for `argparse`."""
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
        """The name of the value in argparse's result."""
        return self.names[0].removeprefix("--").replace("-", "_")

    @property
    def is_list(self) -> bool:
        """Whether it takes any number of words that belong to no option."""
        return self.settings.get("nargs") in ("*", "+") and not self.names[0].startswith("-")


def given(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Return those of these arguments that were given, for a call that has defaults."""
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
