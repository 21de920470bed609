"""The only source of time, ids and randomness; all other code is given an Environment.

A simulation passes a manual clock and seeded ids, so it can replay a run exactly.
"""

from __future__ import annotations

import os
import random
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Environment:
    """Time, ids and randomness, as functions."""

    #: Nanoseconds since 1970-01-01 UTC.
    now_ns: Callable[[], int] = time.time_ns
    #: Seconds that never go back, for waiting only.
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    new_uuid: Callable[[], uuid.UUID] = uuid.uuid4
    rng: random.Random = field(default_factory=random.Random)

    def now_us(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return self.now_ns() // 1000


SYSTEM = Environment()


def this_process() -> str:
    """The name of this process for others: its host and its process id."""
    return f"{socket.gethostname()}-{os.getpid()}"


def is_of_this_host(process: str) -> bool:
    """Whether a process, named as by `this_process`, runs on this host."""
    return process.rpartition("-")[0] == socket.gethostname()
