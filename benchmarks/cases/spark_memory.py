"""What Spark's Python workers take at most while a large store is read, and half of it.

All that is resident counts, what is mapped of files too. The kernel forgets the peak of a process
that is told so before each read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks import spark_session, stores
from benchmarks.job import PARTITIONS, Job, Measure, Sample

_FORGET_PEAK = "5"
_RECORD = 112
_ROWS = 500_000


def workers(job: Job) -> Measure:
    """As many GiB as `--gib` says."""
    times = max(round(job.sizes.gib * (1 << 30) / (_ROWS * _RECORD)), 2)
    path = str(stores.filled_by_arrow(job, _ROWS, times=times))
    share = _ROWS * times // PARTITIONS // 2
    half = ",".join(f'"{number}":{share}' for number in range(PARTITIONS))
    session = spark_session.start(job)

    def peak(**options: str) -> float:
        for worker in _workers():
            (worker / "clear_refs").write_text(_FORGET_PEAK)
        frame = session.read.format("kmq").options(subscribe=stores.TOPIC, **options).load(path)
        frame.write.format("noop").mode("overwrite").save()
        return max(_peak_mb(worker) for worker in _workers())

    def measure() -> Sample:
        of_half = peak(endingOffsets=f'{{"{stores.TOPIC}":{{{half}}}}}')
        return {"half_mb": of_half, "whole_mb": peak()}

    return measure


def _workers() -> Iterator[Path]:
    """Spark's Python processes below this one, in /proc."""
    parents = {int(path.name): _parent(path) for path in Path("/proc").glob("[0-9]*")}
    for number in parents:
        place, above = Path("/proc", str(number)), number
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and "pyspark.daemon" in _read(place / "cmdline"):
            yield place


def _parent(process: Path) -> int:
    return int((_read(process / "stat").rpartition(")")[2].split() or ["", "0"])[1])


def _peak_mb(process: Path) -> float:
    told = [line for line in _read(process / "status").splitlines() if line.startswith("VmHWM")]
    return int(told[0].split()[1]) / 1024 if told else 0.0


def _read(path: Path) -> str:
    """A file of /proc; empty when its process has ended meanwhile."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
