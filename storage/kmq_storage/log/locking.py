"""Holding a lock: wait a while, then say who has it; nothing is ever stolen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kmq_storage import limits
from kmq_storage.environment import Environment
from kmq_storage.errors import UnavailableError
from kmq_storage.objects.disk import Lock

#: The lock is held for some 100 microseconds at a time.
_FIRST_PAUSE, _LONGEST_PAUSE = 10e-6, 500e-6


@contextmanager
def held(lock: Lock, what: str, environment: Environment) -> Iterator[None]:
    """Hold the lock during a block; UnavailableError names the holder after 10 seconds."""
    deadline = environment.monotonic() + limits.LOCK_TIMEOUT
    pause = _FIRST_PAUSE
    while not lock.try_acquire():
        if environment.monotonic() > deadline:
            raise UnavailableError(
                f"{lock.holder()} holds the {what} lock for more than {limits.LOCK_TIMEOUT:g} s "
                "(stopped, perhaps); nothing was written, try again when it goes on or ends",
                holder=lock.holder(),
                lock=what,
            )
        environment.sleep(pause * (0.5 + environment.rng.random()))
        pause = min(pause * 2, _LONGEST_PAUSE)
    try:
        yield
    finally:
        lock.release()
