"""The locks of a log: wait a while, then say who has it; nothing is ever stolen."""

from __future__ import annotations

from collections.abc import Callable

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.errors import UnavailableError
from kmq_storage.log.hint import Hint
from kmq_storage.objects.files import Files, Lock

#: The lock is held for some 100 microseconds at a time; a holder that died wakes nobody.
_FIRST_PAUSE, _LONGEST_PAUSE = 10e-6, 500e-6
_LONGEST_SLEEP = 5e-3
_PAUSE = 5e-3


class GivenBack:
    """Has a thread leave the block without the lock, whatever interrupts it.

    What gives a lock back may be interrupted as it begins: then this one, around it, does so.
    """

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        """The lock is taken in the block."""

    def __exit__(self, *_raised: object) -> None:
        self._lock.release_own()


class AppendLock:
    """The lock under which commits are written; who waits for it sleeps on the hint page."""

    def __init__(self, files: Files, hint: Hint, environment: Environment) -> None:
        self._lock = files.open_lock(paths.APPEND_LOCK)
        self._hint = hint
        self._environment = environment
        self.given_back = GivenBack(self._lock)

    @property
    def seems_free(self) -> bool:
        """Whether nobody holds it, as the hint page says."""
        return not self._hint.appending % 2

    def __enter__(self) -> None:
        self.acquire()

    def acquire(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait for the lock, doing something useful each time it may be free.

        UnavailableError names the holder after 10 seconds.
        """
        if not self._lock.try_acquire():
            self._wait(meanwhile)
        self._note_appending()

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it."""
        if not self._lock.try_acquire():
            return False
        self._note_appending()
        return True

    def _note_appending(self) -> None:
        try:
            self._hint.note_appending()
        except BaseException:  # a signal's
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
            else:  # it is being taken or given back just now
                environment.sleep(pause * (0.5 + environment.rng.random()))
                pause = min(pause * 2, _LONGEST_PAUSE)
            seen = self._hint.appending

    def __exit__(self, *_raised: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the lock back and wake the next one."""
        try:
            self._hint.note_appended()
        finally:
            self._lock.release()
        self._hint.wake_next_appender()


class SyncLock:
    """The sync lock, for who needs it before going on."""

    def __init__(self, files: Files, environment: Environment) -> None:
        self._lock = files.open_lock(paths.SYNC_LOCK)
        self._environment = environment
        self.given_back = GivenBack(self._lock)

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it."""
        return self._lock.try_acquire()

    def __enter__(self) -> None:
        """Wait for the lock; UnavailableError names who has it after 10 seconds."""
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
        """Give the lock back."""
        self._lock.release()

    def holder(self) -> str:
        """Who holds the lock."""
        return self._lock.holder()
