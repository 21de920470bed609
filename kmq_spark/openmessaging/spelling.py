"""The second spelling of every name: `attachQueue` is `attach_queue`."""

from __future__ import annotations

from typing import TypeVar

C = TypeVar("C", bound=type)


def in_camel_case(name: str) -> str:
    """`attach_queue` as `attachQueue`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def also_in_camel_case(cls: C) -> C:
    """Give a class each of its public members under its name in camelCase, too."""
    for name, member in list(vars(cls).items()):
        if not name.startswith("_") and in_camel_case(name) != name and not name.isupper():
            setattr(cls, in_camel_case(name), member)
    return cls
