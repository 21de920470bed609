"""The lock of what many threads do for moments."""

from __future__ import annotations

import copy
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest

from kmq_spark.client.compiled import new_lock

Lock = AbstractContextManager[object]


@pytest.fixture(params=[new_lock, threading.Lock], ids=["new_lock", "threading"])
def lock(request: pytest.FixtureRequest) -> Lock:
    return request.param()


def test_one_thread_at_a_time_is_inside(lock: Lock):
    inside: list[int] = []
    most = 0

    def work(_number: int) -> None:
        nonlocal most
        for _ in range(2_000):
            with lock:
                inside.append(1)
                most = max(most, len(inside))
                inside.pop()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert most == 1


def test_an_error_inside_sets_it_free(lock: Lock):
    with pytest.raises(ValueError, match="inside"), lock:
        raise ValueError("inside")
    with lock:
        pass


def test_who_finds_it_taken_comes_in_when_it_is_free(lock: Lock):
    came = threading.Event()

    def come() -> None:
        with lock:
            came.set()

    with lock:
        thread = threading.Thread(target=come)
        thread.start()
        assert not came.wait(0.05)
    assert came.wait(10.0)
    thread.join()


def test_who_waits_for_it_can_be_interrupted(lock: Lock):
    """Else nothing but a kill ends a handler of signals that waits for what it has interrupted."""
    taken, interrupted = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            time.sleep(0.1)
            signal.pthread_kill(waiting, signal.SIGINT)
            interrupted.wait(20.0)

    waiting = threading.get_ident()
    thread = threading.Thread(target=hold)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        assert taken.wait(10.0)
        with lock:
            raise AssertionError("somebody else has it")
    interrupted.set()
    thread.join()
    with lock:
        pass


def test_it_is_not_copied(lock: Lock):
    """A copy would be free while the other is taken."""
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="pickle"):
            copied(lock)
