"""The log's time where a handle's clock is behind the last commit.

Finds: time that stands still until a clock has caught up, that goes back, or that stays ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from kmq_storage.environment import SYSTEM
from kmq_storage.log.log_time import LogTime

_HOUR, _SECOND = 3_600_000_000, 1_000_000


@dataclass
class _Clocks:
    """A clock that can be set (UTC us), and the seconds that passed."""

    now: int = 50 * _HOUR
    passed: float = 0.0

    def pass_seconds(self, seconds: float) -> None:
        self.now += round(seconds * _SECOND)
        self.passed += seconds


@pytest.fixture
def clocks() -> _Clocks:
    """At hour 50."""
    return _Clocks()


@pytest.fixture
def time(clocks: _Clocks) -> LogTime:
    """The log's time by these clocks."""
    own = replace(SYSTEM, now_ns=lambda: clocks.now * 1000, monotonic=lambda: clocks.passed)
    return LogTime(own)


def test_it_is_the_clocks_time_behind_the_last_commit(clocks: _Clocks, time: LogTime):
    assert time.now_us(clocks.now - 7) == clocks.now
    clocks.pass_seconds(3)
    assert time.now_us(clocks.now - 7) == clocks.now


def test_a_clock_that_is_a_little_behind_is_waited_for(clocks: _Clocks, time: LogTime):
    last = clocks.now + _SECOND // 2
    assert time.now_us(last) == last
    clocks.pass_seconds(0.25)
    assert time.now_us(last) == last
    clocks.pass_seconds(0.5)
    assert time.now_us(last) == clocks.now


def test_where_a_clock_is_far_behind_it_goes_on_at_half_the_speed_until_that_caught_up(
    clocks: _Clocks, time: LogTime
):
    last = clocks.now + _HOUR
    assert time.now_us(last) == last
    clocks.pass_seconds(60)
    assert time.now_us(last) == last + 30 * _SECOND
    last += 30 * _SECOND  # a commit at that time changes nothing
    clocks.pass_seconds(60)
    assert time.now_us(last) == last + 30 * _SECOND
    clocks.pass_seconds(7000)
    assert time.now_us(last) == clocks.now + 40 * _SECOND
    clocks.pass_seconds(100)
    assert time.now_us(last) == clocks.now
    clocks.pass_seconds(1)
    assert time.now_us(last) == clocks.now


def test_a_later_commit_of_another_process_takes_it_along(clocks: _Clocks, time: LogTime):
    last = clocks.now + _HOUR
    time.now_us(last)
    clocks.pass_seconds(60)
    assert time.now_us(last + 20 * _HOUR) == last + 20 * _HOUR
    clocks.pass_seconds(60)
    assert time.now_us(last + 20 * _HOUR) == last + 20 * _HOUR + 30 * _SECOND


def test_a_clock_that_is_set_back_does_not_take_it_along(clocks: _Clocks, time: LogTime):
    last = clocks.now
    assert time.now_us(last) == last
    clocks.now -= 10 * _HOUR
    assert time.now_us(last) == last
    clocks.pass_seconds(60)
    assert time.now_us(last) == last + 30 * _SECOND
    clocks.now += 10 * _HOUR
    assert time.now_us(last) == last + 60 * _SECOND
