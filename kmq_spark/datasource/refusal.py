"""The one form in which a wrong option is refused."""

from __future__ import annotations

from typing import NoReturn

from kmq_storage.errors import InvalidRequestError


def refuse(option: str, value: str, expected: str) -> NoReturn:
    """Raise InvalidRequestError naming the option, its value and what was expected."""
    raise InvalidRequestError(
        f"option {option!r} is {value!r}: expected {expected}", option=option, value=value
    )
