"""The log's time: a handle's clock, but never before the last commit.

A commit by a clock that is far ahead leaves all other clocks behind the log. If its time then stood
still until they catch up, no lock would end and no delayed record become due for as long. So it
goes on, at half the speed of the clocks: they catch up, and nothing takes more than twice as long.
"""

from __future__ import annotations

from kmq_storage.environment import Environment

#: A clock that is less behind (us) is waited for: the clocks of two hosts always differ a little.
_BEHIND = 1_000_000
#: Microseconds of the log's time per second, while the clock is behind it.
_SLOW = 500_000


class LogTime:
    """Tells the log's time; for any number of threads."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        #: While the clock is behind: a time of the log (UTC us), and when that was (monotonic).
        self._since: tuple[int, float] | None = None

    def now_us(self, last: int) -> int:
        """The time (UTC us) after a commit at `last`."""
        now, since = self._environment.now_us(), self._since
        if since is None and now > last - _BEHIND:
            return max(now, last)
        monotonic = self._environment.monotonic()
        begun, at = since or (last, monotonic)
        gone_on = begun + round((monotonic - at) * _SLOW)
        if gone_on < last:  # another process knows a later time
            begun, at, gone_on = last, monotonic, last
        self._since = None if now >= gone_on else (begun, at)
        return max(now, gone_on)
