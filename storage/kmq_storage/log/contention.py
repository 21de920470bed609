"""Taking turns without talking: how long a writer that lost a race waits before the next.

Writers of one bucket share one sequence of names. A loser that comes back at once wins half
of its races and wastes the rest, so losers wait for many commits' time, by chance and longer
with every loss; whoever won goes on meanwhile, and few uploads are in vain.
"""

from __future__ import annotations

from kmq_storage.environment import Environment
from kmq_storage.log.collected import Moment

#: Who loses twice in a row waits for this many commits' time, doubled with each loss more: the
#: first time it may just not have known what others wrote.
_COMMITS_FIRST, _DOUBLINGS_MAX = 8, 3
_PAUSE_MAX = 5.0
_NEW_SHARE = 0.2


class Contention:
    """What one handle learned from its last commits. One thread at a time."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._losses = 0
        #: Seconds that a commit takes, smoothed.
        self._commit_seconds = 0.02
        #: Attempts that another writer won, since the handle was opened.
        self.lost_count = 0

    @property
    def is_likely(self) -> bool:
        """Whether the last attempt was lost: then a look is cheaper than another upload."""
        return self._losses > 0

    def won(self, begun: Moment) -> None:
        """A commit was made; its last attempt began then."""
        seconds = begun.seconds_to(Moment.now(self._environment))
        self._commit_seconds += _NEW_SHARE * (seconds - self._commit_seconds)
        self._losses = 0

    def lost(self) -> None:
        """Another writer was faster: wait for a while."""
        self.lost_count += 1
        self._losses += 1
        if self._losses == 1:
            return
        commits = _COMMITS_FIRST * 2 ** min(self._losses - 2, _DOUBLINGS_MAX)
        pause = commits * self._commit_seconds * (0.5 + self._environment.rng.random())
        self._environment.sleep(min(pause, _PAUSE_MAX))
