"""Taking turns without talking: when a writer of a shared bucket tries, and when it makes room.

Writers share one sequence of names. Who has just made a commit knows the next name first, so it
goes on for a turn of some commits, and then pauses for as long as others need to notice. Who
waits reads how far the turn is, sleeps until its end, and uploads when no commit comes any more.
Nothing here decides about correctness, only about how many uploads are in vain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kmq_storage.environment import Environment

#: Commits of a turn while others are there; alone, turns grow to the longest.
TURN, _LONGEST_TURN = 32, 128
#: How long a writer pauses after its turn, in commits' time.
_PAUSE = 4.0
#: Others count as active for this many commits after one of theirs.
_ACTIVE = 64
#: A log without a commit for this many commits' time is quiet, whatever clocks say.
_QUIET = 10.0
_LOOKS_MAX = 40
#: How many of those who wait try at the end of a turn; more of those who wait for longer.
_TRY_SHARE = 0.3
_SLEEP_MAX = 2.0
_NEW_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the log as one look showed it."""

    lsn: int
    #: UTC microseconds of the last commit.
    time: int
    #: How many commits its writer made in a row.
    run: int


#: Look at the log, with so many commits to be expected there.
Look = Callable[[int], Tail]


class Contention:
    """What one handle learned from its last commits. One thread at a time."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._wins, self._turn, self._missed = 0, TURN, 0
        self._last_won = 0
        self._others = -_ACTIVE
        self._won_at = 0.0
        #: Seconds that a commit takes, smoothed; a guess before the first.
        self._commit_seconds = 0.02
        #: Attempts that another writer won, since the handle was opened.
        self.lost_count = 0

    def before(self, look: Look, tail: Tail) -> None:
        """Wait for the turn, or make room for others after one; at once where nobody else is."""
        if self._last_won and tail.lsn > self._last_won:
            self._others_came(tail.lsn)
        if self._wins >= self._turn:
            self._make_room(look)
        elif self._wins == 0 and tail.lsn - self._others < _ACTIVE:
            self._await_turn(look)

    def _others_came(self, lsn: int) -> None:
        self._others, self._wins, self._turn = lsn, 0, TURN

    def _make_room(self, look: Look) -> None:
        rested = self._environment.monotonic() - self._won_at
        self._sleep(_PAUSE - rested / self._commit_seconds)
        tail = look(1)
        if tail.lsn > self._last_won:
            self._others_came(tail.lsn)
            self._await_turn(look)
        else:
            self._wins, self._turn = 0, min(2 * self._turn, _LONGEST_TURN)

    def _await_turn(self, look: Look) -> None:
        """Sleep until the turn of another writer ends; try then, or when no commit comes."""
        rng = self._environment.rng
        seen = look(1)
        age = self._environment.now_us() / 1e6 - seen.time / 1e6
        if not self._missed and age > _QUIET * self._commit_seconds:
            return
        before = None
        for _ in range(_LOOKS_MAX):
            left = -seen.run % TURN  # turns are multiples of the shortest
            if left == 0 or seen == before:
                if rng.random() < _TRY_SHARE * (1 + self._missed):
                    return
                self._missed += 1  # somebody who waits for longer goes first
            self._sleep(left + 0.3 + 0.4 * rng.random())
            before, seen = seen, look(left + 1)

    def _sleep(self, commits: float) -> None:
        if commits > 0:
            self._environment.sleep(min(commits * self._commit_seconds, _SLEEP_MAX))

    def won(self, seconds: float, lsn: int) -> None:
        """A commit was made; its last attempt took so long."""
        share = _NEW_SHARE if self._last_won else 1.0
        self._commit_seconds += share * (seconds - self._commit_seconds)
        self._wins, self._missed, self._last_won = self._wins + 1, 0, lsn
        self._won_at = self._environment.monotonic()

    def lost(self, lsn: int) -> None:
        """Another writer made the commit of this LSN."""
        self.lost_count += 1
        self._missed += 1
        self._others_came(lsn)
