"""Forked children: objects that hold locks and files reopen them in the child."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from weakref import WeakKeyDictionary

#: The objects, and the name of the method that each has for it.
_known: WeakKeyDictionary[object, str] = WeakKeyDictionary()
#: The number of forks between this process and the one that was started.
_generation = 0


def generation() -> int:
    """A number that differs between a forked child and its parent."""
    return _generation


def reopen_in_child(reopen: Callable[[], None]) -> None:
    """Call a method in every child that this process forks, as long as its object lives.

    It replaces everything that must not be shared with the parent.
    """
    _known[reopen.__self__] = reopen.__name__  # type: ignore[attr-defined] # it is a method


def _after_fork_in_child() -> None:
    global _generation  # noqa: PLW0603 - it is the process's
    _generation += 1
    with ExitStack() as reopening:  # one that can't, its store being gone, keeps back no other
        for owner, name in list(_known.items()):
            reopening.callback(getattr(owner, name))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
