"""Turns of the writers of a shared bucket, which they take without talking to each other.

All writers race for the same next name. The writer that has just made a commit knows the next name
first. So it goes on for a turn of some commits, and then pauses long enough for others to notice.
A waiting writer reads from the log how far the turn is and how fast it goes, and sleeps until its
end. It lets writers go first that have waited longer. All read the same log, so they agree on the
order. This never affects correctness, only the number of uploads that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kmq_storage.environment import Environment

#: Commits of a turn while others are there; alone, turns grow to the longest.
TURN, _LONGEST_TURN = 32, 512
#: How long a writer pauses after its turn, in multiples of a commit's duration.
_PAUSE = 4.0
#: How much longer each further writer in the row waits for those before it, in the same unit.
_SLOT = 2.0
#: A writer counts as active for this many commits after its last one.
_ACTIVE = 64
#: A writer counts as waiting for its turn for this many commits after its last one.
_WAITING = 16 * TURN
#: A log whose last commit is older than this many commits' duration is quiet.
_QUIET = 10.0
#: After this many commits' duration without a commit, a turn counts as ended.
_IDLE = 1.5
#: A turn slower than this many durations per commit leaves room between its commits.
_SLOW = 2.0
#: The own pace counts as much as an observed pace of this many commits.
_PRIOR = 4
#: The least time (seconds) that others need to read a turn and to begin, if a commit takes less.
_STEP_SECONDS = 0.005
#: When at most this many commits of a turn are left, a waiting writer sleeps until its end. Before
#: that, it reads at half of the rest, so that little is left to read at the end.
_NEAR = 6
_LOOKS_MAX = 40
_SLEEP_MAX = 2.0
_NEW_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the log at one look."""

    lsn: int
    #: UTC microseconds of the last commit.
    time: int
    #: The number of commits in a row that the last writer made.
    run: int
    #: The last commit of each writer, by the writer's tag.
    writers: Mapping[bytes, int] = field(default_factory=dict)

    def row(self, own: bytes) -> int | None:
        """How many waiting writers have waited longer; None for a writer without a turn yet."""
        last = self.writers.get(own)
        if last is None:
            return None
        return sum(self.lsn - _WAITING < lsn < last for lsn in self.writers.values())


class Writers:
    """The writers of a log's commits, as a reader learns of them."""

    def __init__(self) -> None:
        self._tag, self._run = b"", 0
        self._lasts: dict[bytes, int] = {}

    def note(self, lsn: int, tag: bytes) -> None:
        """Note that the writer with this tag made the next commit."""
        if tag != self._tag:
            self._tag, self._run = tag, 0
            if len(self._lasts) > _WAITING:
                self._lasts.clear()
        self._run += 1
        self._lasts[tag] = lsn

    def tail(self, lsn: int, time: int) -> Tail:
        """The end of the log, for the LSN and time of its last commit."""
        return Tail(lsn, time, self._run, dict(self._lasts))


@dataclass(frozen=True, slots=True)
class _Turn:
    """Where the turn of another writer was first seen."""

    tail: Tail
    since: float


#: Reads the log; the argument is about how many new commits are expected.
Look = Callable[[int], Tail]


class Contention:
    """One handle's view of the turns; for one thread at a time."""

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
        """Wait for a turn, or after a turn make room for others; at once without other writers."""
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
        """Sleep until the other writer's turn ends and writers that waited longer had theirs.

        It also returns when no commit comes, and when commits come so slowly that there is room.
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
        """Seconds per commit of a turn, averaged with the own pace, as few commits prove little."""
        return (seconds + _PRIOR * self._step) / (commits + _PRIOR)

    @property
    def _step(self) -> float:
        """The duration of a commit, or the time that others need to notice it, if longer."""
        return max(self._commit_seconds, _STEP_SECONDS)

    def _is_quiet(self, seen: Tail) -> bool:
        age = (self._environment.now_us() - seen.time) / 1e6
        return not self._missed and age > _QUIET * self._commit_seconds

    def _slots(self, seen: Tail) -> float:
        """How long to leave to the writers before this one, in multiples of a commit's duration."""
        row = seen.row(self._tag)
        return _SLOT * (self._environment.rng.randrange(2) if row is None else row)

    def _sleep(self, commits: float, pace: float) -> None:
        if commits > 0:
            self._environment.sleep(min(commits * pace, _SLEEP_MAX))

    def won(self, seconds: float, lsn: int) -> None:
        """Note that this handle made a commit, whose last attempt took `seconds`."""
        share = _NEW_SHARE if self._last_won else 1.0
        self._commit_seconds += share * (seconds - self._commit_seconds)
        self._wins, self._missed, self._last_won = self._wins + 1, 0, lsn
        self._won_at = self._environment.monotonic()

    def lost(self, lsn: int) -> None:
        """Note that another writer made the commit of this LSN."""
        self.lost_count += 1
        self._missed += 1
        self._others_came(lsn)
