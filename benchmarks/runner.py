"""Runs the cases of a group side by side: a process each, measured in turns, medians at the end."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.job import Job, Sample

ROOT = Path(__file__).resolve().parent.parent
SETTLE_SECONDS = 0.3
AT_HAND_MIB = 512


class CaseFailedError(Exception):
    """A case that could not be prepared or measured."""


@dataclass
class Result:
    """What one case measured: its first round apart, for it warms up, then the ones that count."""

    samples: list[Sample] = field(default_factory=list)
    error: str | None = None

    def median(self, metric: str) -> float | None:
        """The median of a metric over the rounds after the first."""
        counted = [sample[metric] for sample in self.samples[1:] if metric in sample]
        return statistics.median(counted) if counted else None


class Worker:
    """One measuring process; a context manager."""

    def __init__(self, job: Job) -> None:
        self.name, self.folder = job.case, job.folder
        self._log = job.path("logs", job.case.replace(":", ".") + ".log")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", job.to_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=environment(),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def prepare(self) -> None:
        """Wait until the case is ready."""
        self._answer()

    def measure(self) -> Sample:
        """One round."""
        assert self._process.stdin
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        sample: Sample = self._answer()["sample"]
        return sample

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            raise CaseFailedError(f"{answer['error']} (see {self._log})")
        return answer


def environment() -> dict[str, str]:
    """The environment of a measuring process: this project first, this Python for Spark too.

    Byte code is kept, as pip does it for what it installs: each of Spark's processes would compile
    this project anew.
    """
    roots = [str(ROOT), str(ROOT / "storage"), str(ROOT / "kmq_spark" / "_autoload")]
    given = os.environ.get("PYTHONPATH")
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {
        "PYTHONPATH": os.pathsep.join([*roots, *([given] if given else [])]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run(jobs: Sequence[Job], title: str) -> dict[str, Result]:
    """Measure all cases of a group, each in turn within every round, after one to warm up."""
    results = {job.case: Result() for job in jobs}
    with ExitStack() as stack:
        ready = [
            worker
            for job in jobs
            for worker in [stack.enter_context(Worker(job))]
            if _attempt(worker, results, measured=False)
        ]
        for number in range(jobs[0].sizes.rounds + 1):
            told = f"round {number}" if number else "warming up"
            print(f"{title}: {told}, {len(ready)} cases", file=sys.stderr, flush=True)
            ready = [worker for worker in ready if _attempt(worker, results, measured=True)]
    return results


def _settle(folder: str) -> None:
    """Leave a machine at rest to the next case: the disk done, and memory at hand.

    A virtual machine that gave free memory back to its host gets it again page by page, at a tenth
    of the speed of a file in memory; whoever writes first would pay for all.
    """
    os.sync()
    time.sleep(SETTLE_SECONDS)
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(AT_HAND_MIB):
            file.write(bytes(1 << 20))


def _attempt(worker: Worker, results: dict[str, Result], *, measured: bool) -> bool:
    """Prepare a case or measure it once; a failure is noted and leaves it out from then on."""
    try:
        if measured:
            _settle(worker.folder)
            results[worker.name].samples.append(worker.measure())
        else:
            worker.prepare()
    except CaseFailedError as error:
        results[worker.name].error = str(error)
        print(f"{worker.name} failed: {error}", file=sys.stderr, flush=True)
        return False
    return True
