"""Last work of a source's process, which Spark ends by SIGTERM without calling the source."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

#: Seconds for that work, more than some requests to a bucket take. Spark doesn't wait for it.
_PATIENCE = 5.0


def at_termination(act: Callable[[], object]) -> None:
    """Call `act` when SIGTERM ends the process, unless SIGTERM has another handler.

    It runs in a thread: the interrupted thread may hold any lock.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        acting = threading.Thread(target=act, name="kmq-termination", daemon=True)
        acting.start()
        acting.join(_PATIENCE)
        signal.raise_signal(number)

    signal.signal(signal.SIGTERM, end)
