"""What a group of cases is, and a figure that is made of them."""

from __future__ import annotations

from dataclasses import dataclass

#: Peers that come as jars.
JARS = ("kafka", "delta")


@dataclass(frozen=True)
class Figure:
    """One line of the table: a metric of kmq over the same metric of a peer, and what it should be.

    `target` is what is to be reached now, `later` what comes after; a ratio of rates should be at
    least that, one of times, sizes or multiples at most. `ours` and `peer` are written
    `case.metric`; where there is no peer but a bound, `peer` is that number.
    """

    text: str
    ours: str
    peer: str | float
    target: float | None = None
    later: float | None = None

    @property
    def smaller_is_better(self) -> bool:
        """Whether the metric is a time, a size in memory, a multiple or a number of requests."""
        return self.ours.endswith(("_ms", "_mb", "_times", "_requests"))


@dataclass(frozen=True)
class Group:
    """Cases that are measured in turns, and the figures they give."""

    cases: tuple[str, ...]
    figures: tuple[Figure, ...]
    spark: bool = False
    #: It takes so long that it is measured only when it is named.
    by_name: bool = False

    def kept(self, *, jars: bool) -> tuple[str, ...]:
        """The cases that can run, with or without the peers' jars."""
        return tuple(case for case in self.cases if jars or not any(peer in case for peer in JARS))


def named(module: str, *functions: str) -> tuple[str, ...]:
    """The cases of these functions of a module."""
    return tuple(f"{module}:{function}" for function in functions)
