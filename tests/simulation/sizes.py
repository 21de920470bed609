"""How much one world does: most are small, since what breaks in a few steps breaks there sooner."""

from __future__ import annotations

from dataclasses import dataclass

#: From the first number on, below the second one, as `randrange` takes them.
Span = tuple[int, int]


@dataclass(frozen=True)
class Size:
    """How many of everything."""

    boots: Span
    writers: int
    #: Commits of each writer.
    commits: Span
    readers: int
    #: Looks of each reader.
    looks: Span
    maintainers: tuple[int, ...]
    #: What each maintainer does.
    actions: Span
    #: How long it all takes, as a share of the largest one.
    steps: float


_LARGE = Size((1, 4), 3, (2, 8), 3, (5, 15), (0, 1, 2, 2, 3), (3, 20), 1.0)
_MIDDLE = Size((1, 4), 2, (2, 6), 2, (3, 8), (1, 2, 2, 3), (2, 10), 0.4)
_SMALL = Size((1, 4), 2, (1, 4), 2, (2, 5), (0, 1, 1, 2), (2, 7), 0.15)
#: Little is written, and much done with it: files are sealed, merged, dropped and forgotten.
_TENDED = Size((1, 3), 2, (2, 5), 1, (3, 7), (2, 3), (8, 20), 0.6)
#: One of these at random.
SIZES = (*(_SMALL,) * 12, *(_MIDDLE,) * 3, *(_TENDED,) * 4, _LARGE)
