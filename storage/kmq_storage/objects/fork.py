"""Forked children: objects that hold locks and files reopen them in the child."""

from __future__ import annotations

import os
import weakref
from contextlib import ExitStack
from typing import Protocol


class Reopens(Protocol):
    """Something that shares files or locks with its parent after a fork."""

    def after_fork_in_child(self) -> None:
        """Replace everything that must not be shared with the parent."""


_KNOWN: weakref.WeakSet[Reopens] = weakref.WeakSet()
#: The number of forks between this process and the one that was started.
_generation = 0


def generation() -> int:
    """A number that differs between a forked child and its parent."""
    return _generation


def reopen_in_child(resource: Reopens) -> None:
    """Reopen the resource in every child that this process forks."""
    _KNOWN.add(resource)


def _after_fork_in_child() -> None:
    global _generation  # noqa: PLW0603 - it is the process's
    _generation += 1
    with ExitStack() as reopening:  # one that can't, its store being gone, keeps back no other
        for resource in list(_KNOWN):
            reopening.callback(resource.after_fork_in_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
