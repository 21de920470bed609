"""Objects that live, while any thread adds some and lets others go."""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Living(Generic[T]):
    """A set of objects that it does not keep alive.

    A WeakSet is no use here: its iteration is Python code, and fails when another thread adds one.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, T] = WeakValueDictionary()
        self.clear = self._known.clear

    def add(self, one: T) -> None:
        """Add an object."""
        self._known[id(one)] = one

    def all(self) -> list[T]:
        """Return those that live now."""
        references = self._known.valuerefs()  # one call of C
        return [one for one in (each() for each in references) if one is not None]
