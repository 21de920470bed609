"""The locks of a log. A waiting thread gives up after a while and names the holder.

A lock is never taken from its holder: the kernel frees it when the holder dies.
"""

from __future__ import annotations

from collections.abc import Callable

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.errors import UnavailableError
from kmq_storage.log.files.hint import Hint
from kmq_storage.objects.files import Files, Lock

#: The lock is usually held for some 100 microseconds. Sleeps are short since a dead holder wakes
#: no waiting thread.
_FIRST_PAUSE, _LONGEST_PAUSE = 10e-6, 500e-6
_LONGEST_SLEEP = 5e-3
_PAUSE = 5e-3


class GivenBack:
    """Makes sure that the thread leaves the block without the lock, whatever interrupts it.

    An interruption may prevent the inner `__exit__` from releasing the lock; this outer block
    then releases it.
    """

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        """Take nothing: the lock is taken inside the block."""

    def __exit__(self, *_raised: object) -> None:
        self._lock.release_own()


class AppendLock:
    """The lock under which commits are written; waiting threads sleep on the hint page."""

    def __init__(self, files: Files, hint: Hint, environment: Environment) -> None:
        self._lock = files.open_lock(paths.APPEND_LOCK)
        self._hint = hint
        self._environment = environment
        self.given_back = GivenBack(self._lock)

    @property
    def seems_free(self) -> bool:
        """Whether the lock is free according to the hint page."""
        return not self._hint.appending % 2

    def __enter__(self) -> None:
        self.acquire()

    def acquire(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait for the lock, calling `meanwhile` after each sleep.

        UnavailableError names the holder after `limits.LOCK_TIMEOUT` seconds.
        """
        if not self._lock.try_acquire():
            self._wait(meanwhile)
        self._note_appending()

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        if not self._lock.try_acquire():
            return False
        self._note_appending()
        return True

    def _note_appending(self) -> None:
        try:
            self._hint.note_appending()
        except BaseException:  # raised by a signal handler
            self._lock.release()
            raise

    def _wait(self, meanwhile: Callable[[], object]) -> None:
        environment = self._environment
        deadline = environment.monotonic() + limits.LOCK_TIMEOUT
        pause = _FIRST_PAUSE
        seen = self._hint.appending
        while not self._lock.try_acquire():
            if environment.monotonic() > deadline:
                raise UnavailableError(
                    f"{self._lock.holder()} holds the append lock for more than "
                    f"{limits.LOCK_TIMEOUT:g} s (stopped, perhaps); nothing was written, try again "
                    "when it goes on or ends",
                    holder=self._lock.holder(),
                    lock="append",
                )
            if seen % 2:
                self._hint.sleep_while_appending(seen, _LONGEST_SLEEP)
                meanwhile()
            else:  # the lock is just being taken or released
                environment.sleep(pause * (0.5 + environment.rng.random()))
                pause = min(pause * 2, _LONGEST_PAUSE)
            seen = self._hint.appending

    def __exit__(self, *_raised: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock and wake a waiting thread."""
        try:
            self._hint.note_appended()
        finally:
            self._lock.release()
        self._hint.wake_next_appender()


class SyncLock:
    """The lock under which log files are synced and rewritten."""

    def __init__(self, files: Files, environment: Environment) -> None:
        self._lock = files.open_lock(paths.SYNC_LOCK)
        self._environment = environment
        self.given_back = GivenBack(self._lock)

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        return self._lock.try_acquire()

    def __enter__(self) -> None:
        """Wait for the lock; UnavailableError names the holder after `limits.LOCK_TIMEOUT`."""
        environment, lock = self._environment, self._lock
        deadline = environment.monotonic() + limits.LOCK_TIMEOUT
        while not lock.try_acquire():
            if environment.monotonic() > deadline:
                raise UnavailableError(
                    f"{lock.holder()} holds the sync lock for more than {limits.LOCK_TIMEOUT:g} s; "
                    "nothing was changed, try again when it goes on or ends",
                    holder=lock.holder(),
                    lock="sync",
                )
            environment.sleep(_PAUSE)

    def __exit__(self, *_raised: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def holder(self) -> str:
        """The holder of the lock, for messages."""
        return self._lock.holder()
