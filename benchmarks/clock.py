"""How fast, and how late."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks.job import Sample


class Stopwatch:
    """The seconds a `with` block took."""

    seconds: float

    def rate(self, count: int) -> Sample:
        """That many things in those seconds, as a sample."""
        return {"rate": count / self.seconds}


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time a block."""
    watch = Stopwatch()
    began = time.perf_counter()
    yield watch
    watch.seconds = time.perf_counter() - began


def spread(milliseconds: Sequence[float]) -> Sample:
    """Median, 99th percentile and maximum of delays."""
    ordered = sorted(milliseconds)
    return {
        "p50_ms": ordered[len(ordered) // 2],
        "p99_ms": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "max_ms": ordered[-1],
    }


def middle(once: Callable[[], Sample]) -> Sample:
    """The medians of three samples: for a JVM, which warms up over many queries."""
    samples = [once() for _ in range(3)]
    return {name: statistics.median(each[name] for each in samples) for name in samples[0]}
