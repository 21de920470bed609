"""The threads that run what is due.

Finds: what waits behind something else though a thread could be had, what runs too early, in the
wrong order or after a close, and threads beyond their bound.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from kmq_spark.client.orderly import runs
from kmq_spark.client.orderly.runs import Runs
from tests.support.threads import no_more_threads
from tests.support.waiting import until


def _now() -> float:
    return time.monotonic()


def _run_two_at_a_time() -> None:
    running: Runs[Callable[[], object]] = Runs(lambda call: call(), _now)
    ran, both = threading.Event(), threading.Barrier(3)
    running.submit(ran.set)
    assert ran.wait(30)
    running.submit(both.wait)  # one thread is idle, and two are needed
    running.submit(both.wait)
    both.wait(30)
    running.close()


def test_what_is_due_at_the_same_time_runs_at_the_same_time():
    for _ in range(50):
        _run_two_at_a_time()


def test_what_is_due_later_waits_and_keeps_nobody_else():
    now, order = 0.0, list[str]()
    running = Runs(order.append, lambda: now)
    running.submit("last", 0.2)
    running.submit("second", 0.1)
    running.submit("first")
    for number, now in enumerate((0.0, 0.1, 0.2), 1):  # noqa: B007
        until(lambda number=number: len(order) >= number)
        assert order == ["first", "second", "last"][:number]
    running.close()


def test_nothing_runs_after_a_close():
    order: list[str] = []
    running = Runs(order.append, _now)
    running.submit("later", 3600)
    running.close()
    running.submit("too late")
    assert order == []


def test_where_no_more_threads_can_be_had_the_others_do_all():
    goes_on, order = threading.Event(), []

    def run(number: int) -> None:
        assert goes_on.wait(30)
        order.append(number)

    running = Runs(run, _now)
    with no_more_threads(), pytest.raises(RuntimeError):
        running.submit(1)
    running.submit(2)
    with no_more_threads():
        running.submit(3)
    goes_on.set()
    until(lambda: order == [1, 2, 3])
    running.close()


def test_there_are_no_more_threads_than_allowed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runs, "_THREADS_MAX", 3)
    goes_on, order = threading.Event(), []

    def run(number: int) -> None:
        assert goes_on.wait(30)
        order.append(number)

    running = Runs(run, _now)
    for number in range(10):
        running.submit(number)
    assert len(running.threads) == 3
    goes_on.set()
    while len(order) < 10:
        time.sleep(0.001)
    running.close()
    assert sorted(order) == list(range(10))
