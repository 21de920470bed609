"""Which thread of this process has a lock, also when the call that took it was interrupted."""

from __future__ import annotations

from threading import Lock, get_ident


class Owner:
    """The thread that has a lock; zero is nobody."""

    __slots__ = ("_guard", "thread")

    def __init__(self) -> None:
        self._guard = Lock()
        self.thread = 0

    def try_become(self) -> bool:
        """Have this thread be the owner if there is none."""
        me = get_ident()
        with self._guard:
            if self.thread:
                return False
            self.thread = me  # who is interrupted from here on finds out that it has the lock
        return True

    def is_here(self) -> bool:
        """Whether this thread is the owner."""
        return self.thread == get_ident()
