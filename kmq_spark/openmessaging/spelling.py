"""The second spelling of every name: `attachQueue` is `attach_queue`."""

from __future__ import annotations


def in_camel_case(name: str) -> str:
    """`attach_queue` as `attachQueue`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class BothSpellings:
    """What gives the methods of a subclass their names in camelCase, too."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        for name, member in list(vars(cls).items()):
            if not name.startswith("_"):
                setattr(cls, in_camel_case(name), member)
