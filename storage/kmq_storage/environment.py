"""The only source of time, ids and randomness: everything else takes an Environment.

A simulation hands in a manual clock and seeded ids, and replays a run exactly.
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
    """Time, ids and randomness as functions: nanoseconds, 16 random bytes, seconds."""

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
    """What others are told of this process: its host and its id."""
    return f"{socket.gethostname()}-{os.getpid()}"


def is_of_this_host(process: str) -> bool:
    """Whether a process runs on this host, by what `this_process` tells others of it."""
    return process.rpartition("-")[0] == socket.gethostname()
