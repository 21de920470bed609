"""Cutting a sequence where it would grow too large: into segments, commits, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def cut(items: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Runs of items in order, each of at most this size; an item that is larger stands alone."""
    run: list[T] = []
    size = 0
    for item in items:
        if run and size + size_of(item) > most:
            yield run
            run, size = [], 0
        run.append(item)
        size += size_of(item)
    if run:
        yield run
