"""Forked children: what holds locks and files is told to reopen them."""

from __future__ import annotations

import os
import weakref
from contextlib import ExitStack
from typing import Protocol


class Reopens(Protocol):
    """Something that shares files or locks with its parent after a fork."""

    def after_fork_in_child(self) -> None:
        """Replace what must not be shared."""


_KNOWN: weakref.WeakSet[Reopens] = weakref.WeakSet()


def reopen_in_child(resource: Reopens) -> None:
    """Have the resource reopened in every child that this process forks."""
    _KNOWN.add(resource)


def _after_fork_in_child() -> None:
    with ExitStack() as reopening:  # one that can't, its store being gone, keeps back no other
        for resource in list(_KNOWN):
            reopening.callback(resource.after_fork_in_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
