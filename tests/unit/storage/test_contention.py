"""Taking turns at a bucket. Finds writers that upload in vain, and one that never makes room."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kmq_storage.environment import SYSTEM
from kmq_storage.log.bucket.contention import TURN, Contention, Tail

COMMIT = 0.02


class Clock:
    """A time that only sleeping moves on."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turns(clock: Clock) -> Contention:
    return Contention(
        replace(
            SYSTEM,
            monotonic=lambda: clock.now,
            now_ns=lambda: int(clock.now * 1e9),
            sleep=clock.sleep,
            rng=random.Random(1),
        ),
        b"own",
    )


def _tail(lsn: int, clock: Clock, run: int = 1) -> Tail:
    return Tail(lsn, int(clock.now * 1e6), run)


def _win(turns: Contention, clock: Clock, lsn: int) -> None:
    clock.now += COMMIT
    turns.won(COMMIT, lsn)


def test_a_lone_writer_hardly_pauses(turns: Contention, clock: Clock):
    for lsn in range(1, 1001):
        turns.before(lambda _, at=lsn: _tail(at - 1, clock, at), lsn - 1)
        _win(turns, clock, lsn)
    assert sum(clock.slept) < 0.06 * 1000 * COMMIT


def test_a_writer_makes_room_after_its_turn_while_others_are_there(turns: Contention, clock: Clock):
    turns.lost(1)
    begun = len(clock.slept)
    for lsn in range(2, 2 + TURN):
        turns.before(lambda _, at=lsn: _tail(at - 1, clock), lsn - 1)
        _win(turns, clock, lsn)
    del clock.slept[begun:]
    last = TURN + 1
    turns.before(lambda _: _tail(last, clock), last)
    assert clock.slept
    assert clock.slept[0] >= 2 * COMMIT


def test_who_waits_uploads_nothing_before_the_turn_of_another_ends(turns: Contention, clock: Clock):
    _win(turns, clock, 1)
    turns.lost(2)
    looks: list[Tail] = []

    def run_on() -> Iterator[Tail]:
        """Another writer's turn, a commit per commit's time, and its pause."""
        begin = clock.now
        while True:
            run = min(int((clock.now - begin) / COMMIT) + 1, TURN)
            yield Tail(1 + run, int(clock.now * 1e6), run)

    tails = run_on()

    def look(_: int) -> Tail:
        looks.append(next(tails))
        return looks[-1]

    turns.before(look, 2)
    assert looks[-1].run == TURN
    assert len(looks) <= 10


def test_a_quiet_log_is_written_at_once_whoever_wrote_last(turns: Contention, clock: Clock):
    _win(turns, clock, 1)
    clock.now += 60.0
    old = Tail(2, int((clock.now - 30.0) * 1e6), 1)
    turns.before(lambda _: old, 2)
    assert clock.slept == []


def test_who_has_waited_for_longest_is_next_and_others_leave_it_time(
    turns: Contention, clock: Clock
):
    writers = {b"holder": 2 + TURN, b"own": 2, b"early": 1}
    ended = Tail(2 + TURN, int(clock.now * 1e6), TURN, writers)
    turns.lost(2 + TURN)
    turns.before(lambda _: ended, ended.lsn)
    assert sum(clock.slept) >= 2 * COMMIT
    clock.slept.clear()
    turns.lost(2 + TURN)
    first = Tail(ended.lsn, ended.time, TURN, {**writers, b"early": 3})
    turns.before(lambda _: first, first.lsn)
    assert clock.slept == []
