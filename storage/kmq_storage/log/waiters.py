"""The threads of a handle that wait for commits, and that a close has to wake.

A wake reaches only who sleeps, and one word of memory can't tell more than commits: who has looked
whether it is to go on, and is about to sleep, would sleep on. So it is woken until it is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What lies between wakes (seconds): a thread that gets no processor has about a second in all.
_PAUSES = [0.0001 * 2**n for n in range(13)]


class Waiters:
    """Threads from their last look whether to go on waiting until they slept."""

    def __init__(self, wake: Callable[[], None], pause: Callable[[float], None]) -> None:
        self._wake = wake
        self._pause = pause
        self._asleep = set[tuple[int, object]]()

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """For a last look and the sleep behind it."""
        me = (threading.get_ident(), object())
        try:
            self._asleep.add(me)
            yield
        finally:
            self._asleep.discard(me)

    def wake(self) -> None:
        """Have all look again; the own thread, of which a signal may be handled here, does so."""
        me, asleep = threading.get_ident(), self._asleep.copy()
        looked = {each for each in asleep if each[0] != me}
        self._wake()
        for pause in _PAUSES:
            if looked.isdisjoint(self._asleep):
                return
            self._pause(pause)
            self._wake()
