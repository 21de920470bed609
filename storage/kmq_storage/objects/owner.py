"""The thread of this process that holds a lock, even if the call that took it was interrupted."""

from __future__ import annotations

from threading import Lock, get_ident


class Owner:
    """The thread that holds a lock; zero stands for none."""

    __slots__ = ("_guard", "thread")

    def __init__(self) -> None:
        self._guard = Lock()
        self.thread = 0

    def try_become(self) -> bool:
        """Make this thread the owner, if there is none."""
        me = get_ident()
        with self._guard:
            if self.thread:
                return False
            self.thread = me  # if it is interrupted from here on, the thread knows it has the lock
        return True

    def is_here(self) -> bool:
        """Whether this thread is the owner."""
        return self.thread == get_ident()
