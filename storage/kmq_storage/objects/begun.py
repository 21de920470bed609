"""Work in threads, also where no more of them can be had."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


def begun(pool: ThreadPoolExecutor, work: Callable[[], None]) -> Future[None]:
    """The outcome of work in a thread; without one, it is done before this returns."""
    try:
        return pool.submit(work)
    except RuntimeError:  # no more threads here, or the interpreter ends
        work()
    done: Future[None] = Future()
    done.set_result(None)
    return done
