"""Handlers of signals, for a while."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_usr1(call: Callable[[], object]) -> Iterator[None]:
    """A block in which SIGUSR1 has this called."""
    before = signal.signal(signal.SIGUSR1, lambda *_: call())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
