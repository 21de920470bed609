"""Taking turns without talking: when a writer of a shared bucket tries, and when it makes room.

Writers share one sequence of names. Who has just made a commit knows the next name first, so it
goes on for a turn of some commits, and then pauses for as long as others need to notice. Who
waits reads how far the turn is and how fast it goes, sleeps until its end, and lets those go first
that have waited for longer: all read the same log, so all know whose turn is next.
Nothing here decides about correctness, only about how many uploads are in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kmq_storage.environment import Environment

#: Commits of a turn while others are there; alone, turns grow to the longest.
TURN, _LONGEST_TURN = 32, 512
#: How long a writer pauses after its turn, in commits' time.
_PAUSE = 4.0
#: How much later each one in the row tries, if those before it don't, in commits' time.
_SLOT = 2.0
#: Others count as active for this many commits after one of theirs.
_ACTIVE = 64
#: And as waiting for their turn for this many.
_WAITING = 16 * TURN
#: A log without a commit for this many commits' time is quiet, whatever clocks say.
_QUIET = 10.0
#: Nothing for so many commits' time: nobody is at it.
_IDLE = 1.5
#: A turn that is slower than this many commits' time leaves room between its commits.
_SLOW = 2.0
#: An observed pace counts for as much as the own one when it is of so many commits.
_PRIOR = 4
#: What others need at least to read a turn and to begin, where a commit takes less (seconds).
_STEP_SECONDS = 0.005
#: Who waits reads on during a turn, so that little is left to read at its end.
_NEAR = 6
_LOOKS_MAX = 40
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
    #: The last commits of its writers, by their tags.
    writers: Mapping[bytes, int] = field(default_factory=dict)

    def row(self, own: bytes) -> int | None:
        """How many of those that wait have waited for longer; None for who never had a turn."""
        last = self.writers.get(own)
        if last is None:
            return None
        return sum(self.lsn - _WAITING < lsn < last for lsn in self.writers.values())


class Writers:
    """Who made the commits of a log, as its reader learns it."""

    def __init__(self) -> None:
        self._tag, self._run = b"", 0
        self._lasts: dict[bytes, int] = {}

    def note(self, lsn: int, tag: bytes) -> None:
        """The next commit was made by the writer with this tag."""
        if tag != self._tag:
            self._tag, self._run = tag, 0
            if len(self._lasts) > _WAITING:
                self._lasts.clear()
        self._run += 1
        self._lasts[tag] = lsn

    def tail(self, lsn: int, time: int) -> Tail:
        """The end of the log, with its last commit."""
        return Tail(lsn, time, self._run, dict(self._lasts))


@dataclass(frozen=True, slots=True)
class _Turn:
    """Where the turn of another writer was first seen."""

    tail: Tail
    since: float


#: Look at the log, with so many commits to be expected there.
Look = Callable[[int], Tail]


class Contention:
    """What one handle learned from its last commits. One thread at a time."""

    def __init__(self, environment: Environment, tag: bytes) -> None:
        self._environment = environment
        self._tag = tag
        self._wins, self._turn, self._missed = 0, TURN, 0
        self._last_won = 0
        self._others = -_ACTIVE
        self._won_at = 0.0
        #: Seconds that a commit takes, smoothed; a guess before the first.
        self._commit_seconds = 0.02
        #: Attempts that another writer won, since the handle was opened.
        self.lost_count = 0

    def before(self, look: Look, lsn: int) -> None:
        """Wait for the turn, or make room for others after one; at once where nobody else is."""
        if self._last_won and lsn > self._last_won:
            self._others_came(lsn)
        if self._wins >= self._turn:
            self._make_room(look)
        elif self._wins == 0 and lsn - self._others < _ACTIVE:
            self._await_turn(look)

    def _others_came(self, lsn: int) -> None:
        self._others, self._wins, self._turn = lsn, 0, TURN

    def _make_room(self, look: Look) -> None:
        rested = self._environment.monotonic() - self._won_at
        alone = self._turn > TURN
        step = self._commit_seconds if alone else self._step
        self._sleep(_PAUSE - rested / step, step)
        tail = look(1)
        if tail.lsn > self._last_won:
            self._others_came(tail.lsn)
            self._await_turn(look)
        else:
            self._wins, self._turn = 0, min(2 * self._turn, _LONGEST_TURN)

    def _await_turn(self, look: Look) -> None:
        """Sleep until the turn of another writer ends and those that waited for longer had theirs.

        Return to try: then, when no commit comes, and where they come slowly.
        """
        seen = look(1)
        if self._is_quiet(seen):
            return
        turn, idle = _Turn(seen, self._environment.monotonic()), False
        for _ in range(_LOOKS_MAX):
            left = -seen.run % TURN  # turns are multiples of the shortest
            pace = self._paced(seen.lsn - turn.tail.lsn, self._environment.monotonic() - turn.since)
            if pace > _SLOW * self._step:
                return
            over = left == 0 or idle
            if over:
                wait = self._slots(seen)
            else:
                wait = _IDLE if seen is turn.tail else left + 0.3 if left <= _NEAR else left / 2
            if not wait:
                return
            self._sleep(wait, max(pace, _STEP_SECONDS) if over else pace)
            before, seen = seen, look(1 if over else int(wait))
            idle = seen.lsn == before.lsn
            if over and idle:
                return
            if seen.run < seen.lsn - before.lsn:
                turn = _Turn(seen, self._environment.monotonic())

    def _paced(self, commits: int, seconds: float) -> float:
        """Seconds per commit of a turn; few commits prove little, so the own ones count too."""
        return (seconds + _PRIOR * self._step) / (commits + _PRIOR)

    @property
    def _step(self) -> float:
        """What a commit takes, or what others need to notice it where that is more."""
        return max(self._commit_seconds, _STEP_SECONDS)

    def _is_quiet(self, seen: Tail) -> bool:
        age = (self._environment.now_us() - seen.time) / 1e6
        return not self._missed and age > _QUIET * self._commit_seconds

    def _slots(self, seen: Tail) -> float:
        """How many commits' time to leave to those that are before this one."""
        row = seen.row(self._tag)
        return _SLOT * (self._environment.rng.randrange(2) if row is None else row)

    def _sleep(self, commits: float, pace: float) -> None:
        if commits > 0:
            self._environment.sleep(min(commits * pace, _SLEEP_MAX))

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
