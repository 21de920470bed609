"""Cutting sequences into runs of bounded size, and ranges; choosing neighbours to merge."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def cut(items: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Runs of items in order, each of at most size `most`; a larger item is a run by itself."""
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


def outside(spans: Iterable[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that none of these spans covers, in order."""
    for low, high in sorted(spans):
        if start < min(low, end):
            yield start, min(low, end)
        start = max(start, high)
    if start < end:
        yield start, end


def taken_in(sizes: Sequence[int], most: int, times: float) -> int:
    """How many of the last items to merge: the last, with neighbours that it takes in.

    These are less than `times` as large as the last, and fit into `most` with it.
    """
    count, total = 1, sizes[-1]
    for size in reversed(sizes[:-1]):
        total += size
        if size >= times * sizes[-1] or total > most:
            break
        count += 1
    return count


def grown(
    items: Sequence[T],
    size_of: Callable[[T], int],
    most: int,
    *,
    times: float,
    final: float | None,
) -> Iterator[Sequence[T]]:
    """Runs of two or more neighbours to merge: at most size `most`, `times` as large as each item.

    From each item, the longest run is taken. This bounds the work when merged runs become items
    again: no data is part of more merges than log(most / smallest item) to the base `times`.

    With `final`, fewer items are left, whatever their sizes. These are merged, too:

    - a run that can't grow, because its next neighbour doesn't fit, if it is `final` times as large
    - a run with more than `times` items that are each more than a `times`th of the largest
    - an item and all behind it, if these are more than `times` times as large as this item. So what
      is left behind an item is at most so large, and the number of items grows with the logarithm.
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
    """The end of the longest run from `first` on that grows enough; `first` if there is none."""
    behind, total, largest = first, 0, 0
    ascending: list[int] = []
    for at in range(first, len(sizes)):
        if total + sizes[at] > most:
            return at if final is not None and total >= final * largest else behind
        total, largest = total + sizes[at], max(largest, sizes[at])
        insort(ascending, sizes[at])
        alike = at + 1 - first - bisect_right(ascending, largest / times)
        if total >= times * largest or (final is not None and alike > times):
            behind = at + 1
    is_small = final is not None and total - sizes[first] > times * sizes[first]
    return len(sizes) if is_small else behind
