"""Cutting a sequence where it would grow too large: into segments, commits, copies; and merging."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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


def grown(
    items: Sequence[T], size_of: Callable[[T], int], most: int, *, times: int
) -> Iterator[Sequence[T]]:
    """Runs of two neighbours or more, of at most this size, `times` as large as any item of them.

    If such a run becomes one item, again and again, nothing is part of more than
    log(most / smallest item) of them, to the base `times`. From each item the longest run is taken.
    """
    sizes = [size_of(item) for item in items]
    first = 0
    while first < len(items):
        behind = _grown_to(sizes, first, most, times)
        if behind - first >= 2:
            yield items[first:behind]
        first = max(behind, first + 1)


def _grown_to(sizes: Sequence[int], first: int, most: int, times: int) -> int:
    """Up to where the longest run that grows enough goes on from a place; the place if none."""
    behind, total, largest = first, 0, 0
    for at in range(first, len(sizes)):
        total, largest = total + sizes[at], max(largest, sizes[at])
        if total > most:
            break
        if total >= times * largest:
            behind = at + 1
    return behind
