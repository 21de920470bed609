"""How maintenance goes about its work: whose damage ends what, and when it rests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.damaged import Apart

#: Called between two pieces of work.
Rest: TypeAlias = Callable[[], None]

#: The share of its time that a round works at first, and by how much that grows each second: who
#: lays out less than arrives comes to work without a rest.
_SHARE = 1 / 8
_GROWTH = 1 / 100
#: Less work than this (seconds) is worth no rest: waking takes time, too.
_PIECE = 0.002


def at_once() -> None:
    """No rest: who waits for the end wants it soon."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How it is worked."""

    apart: Apart = nullcontext
    rest: Rest = at_once


#: Damage ends all, and nothing is waited for.
PLAIN = Manner()


def resting(worked: float, since: float) -> float:
    """How long to rest after a piece of work, so long after the round began (seconds)."""
    share = min(_SHARE + _GROWTH * since, 1.0)
    return worked * (1 / share - 1)


class Pace:
    """The rests of one round in a process that commits meanwhile; none while it does not.

    The interpreter is one thread's at a time: what is laid out in one go is not sent by another.
    """

    def __init__(self, log: CommitLog, wait: Callable[[float], object]) -> None:
        self._log, self._wait = log, wait
        self._monotonic = log.environment.monotonic
        self._begun = self._awake = self._monotonic()
        self._lsn = log.known_state.lsn

    def rest(self) -> None:
        """Rest as long as the work since the last call is worth."""
        now = self._monotonic()
        worked, lsn = now - self._awake, self._log.known_state.lsn
        if worked < _PIECE:
            return
        if lsn != self._lsn:
            self._wait(resting(worked, now - self._begun))
        self._lsn, self._awake = lsn, self._monotonic()
