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
        own = size_of(item)
        if run and size + own > most:
            yield run
            run, size = [], 0
        run.append(item)
        size += own
    if run:
        yield run


def grown(
    items: Sequence[T],
    size_of: Callable[[T], int],
    most: int,
    *,
    times: float,
    final: float | None,
) -> Iterator[Sequence[T]]:
    """Runs of two neighbours or more, of at most this size, `times` as large as any item of them.

    `final` times are enough for a run into which its next neighbour doesn't fit, which is not worth
    waiting for. If such runs become items, again and again, nothing is part of more than
    log(most / smallest item) of them, to the base `times`, and of a final one. From each item the
    longest run is taken.
    """
    sizes = [size_of(item) for item in items]
    first = 0
    while first < len(items):
        behind = _grown_to(sizes, first, most, times, final)
        if behind - first >= 2:
            yield items[first:behind]
        first = max(behind, first + 1)


def _grown_to(
    sizes: Sequence[int], first: int, most: int, times: float, final: float | None
) -> int:
    """Up to where the longest run that grows enough goes on from a place; the place if none."""
    behind, total, largest = first, 0, 0
    for at in range(first, len(sizes)):
        if total + sizes[at] > most:
            return at if final is not None and total >= final * largest else behind
        total, largest = total + sizes[at], max(largest, sizes[at])
        if total >= times * largest:
            behind = at + 1
    return behind
