"""Maintenance beside a process that commits: how long it rests between pieces of work."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kmq_spark as kmq
from kmq_storage.environment import SYSTEM
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk import replica
from kmq_storage.maintenance.maintain import tidy
from kmq_storage.maintenance.manner import Manner, Pace, resting
from kmq_storage.objects.memory import MemoryDisk
from tests.support.engine import Sent, open_engine, send_rows


@pytest.fixture
def store() -> kmq.Store:
    store = open_engine(MemoryDisk(f"memory://{uuid.uuid4().hex}"))
    store.create_topic("t")
    return store


class _Hand:
    """Time that passes where somebody works or rests."""

    def __init__(self, log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.rests = 100.0, list[float]()
        own = replace(SYSTEM, monotonic=lambda: self.now)
        monkeypatch.setattr(log, "environment", own)

        self.pace = Pace(log, self._wait)

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.pace.rest()

    def _wait(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds


@pytest.fixture
def hand(store: kmq.Store, monkeypatch: pytest.MonkeyPatch) -> _Hand:
    return _Hand(store.log, monkeypatch)


@given(st.floats(0.001, 10.0), st.floats(0.0, 87.0))
def test_the_share_that_is_worked_grows_from_an_eighth(worked: float, since: float):
    share = worked / (worked + resting(worked, since))
    assert share == pytest.approx(min(1 / 8 + since / 100, 1.0))


def test_a_round_that_does_not_end_comes_to_work_without_a_rest():
    assert resting(1.0, 87.5) == resting(1.0, 3_600.0) == 0.0


def test_it_rests_after_a_piece_while_this_process_commits(store: kmq.Store, hand: _Hand):
    for _ in range(2):
        send_rows(store.log, "t", [Sent(None, b"v")])
        hand.work(0.1)
    first = resting(0.1, 0.1)
    assert hand.rests == pytest.approx([first, resting(0.1, 0.2 + first)])


def test_it_goes_on_at_once_when_nothing_was_committed_meanwhile(hand: _Hand):
    hand.work(0.1)
    assert hand.rests == []


def test_small_pieces_are_rested_from_together(store: kmq.Store, hand: _Hand):
    for _ in range(3):
        send_rows(store.log, "t", [Sent(None, b"v")])
        hand.work(0.001)
    assert hand.rests == pytest.approx([resting(0.002, 0.002)])


def test_maintenance_rests_between_the_pieces_of_a_segment(store: kmq.Store):
    rests: list[int] = []
    for _ in range(20):
        send_rows(store.log, "t", [Sent(None, b"v" * 100)] * 10)
    sealed, _ = tidy(store.log, seal_after=0.0, manner=Manner(rest=lambda: rests.append(1)))
    assert sealed.rows == 200
    assert len(rests) > 1


@pytest.mark.parametrize(("threads", "pauses"), [(1, 0), (2, 3)])
def test_who_reads_a_long_log_lets_other_threads_run_in_between(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, threads: int, pauses: int
):
    for _ in range(100):
        send_rows(store.log, "t", [Sent(None, b"v")])
    slept = list[float]()
    monkeypatch.setattr(replica, "SYSTEM", replace(SYSTEM, sleep=slept.append))
    monkeypatch.setattr("threading.active_count", lambda: threads)
    assert store.log.snapshot()[0].lsn == store.log.refresh().lsn
    assert len(slept) == pauses
