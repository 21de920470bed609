"""How maintenance works: how it isolates damage, and when it rests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.damaged import Apart

#: Called between two pieces of work.
Rest: TypeAlias = Callable[[], None]

#: The share of its time that a round works at first, and by how much that grows each second. So
#: maintenance that is slower than the producers ends up working without a rest.
_SHARE = 1 / 8
_GROWTH = 1 / 100
#: No rest after less work than this (seconds), since waking takes time, too.
_PIECE = 0.002


def no_rest() -> None:
    """Take no rest, for callers that wait for the end."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How maintenance isolates damage (`apart`) and rests between pieces of work."""

    apart: Apart = nullcontext
    rest: Rest = no_rest


#: Damage ends all work, and there are no rests.
PLAIN = Manner()


def resting(worked: float, since: float) -> float:
    """How long to rest after `worked` seconds of work, `since` seconds after the round began."""
    share = min(_SHARE + _GROWTH * since, 1.0)
    return worked * (1 / share - 1)


class Pace:
    """Rests of maintenance in the background, taken only while the process commits.

    Python runs one thread at a time, so work without rests would keep producers from sending.
    """

    def __init__(self, log: CommitLog, wait: Callable[[float], object]) -> None:
        self._log, self._wait = log, wait
        self._monotonic = log.environment.monotonic
        self._begun = self._awake = self._monotonic()
        self._lsn = log.known_state.lsn

    def rest(self) -> None:
        """Rest in proportion to the work since the last call."""
        now = self._monotonic()
        worked, lsn = now - self._awake, self._log.known_state.lsn
        if worked < _PIECE:
            return
        if lsn != self._lsn:
            self._wait(resting(worked, now - self._begun))
        self._lsn, self._awake = lsn, self._monotonic()
