"""The lock of what many threads do for moments."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Protocol


class Lock(Protocol):
    """What is asked of one; taking it is one call of C, so that no signal comes in between."""

    def __enter__(self) -> object: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> object: ...


def new_lock() -> Lock:
    """One of `client.brief_lock`; where nobody compiled that, threads wait in line at times."""
    try:
        from kmq_spark.client.brief_lock import BriefLock
    except ImportError:
        return threading.Lock()
    return BriefLock()
