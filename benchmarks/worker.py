"""A measuring process: prepares one case, then measures it each time it is asked to.

It speaks over its standard streams, a line each way: ready, then one sample for each line it reads.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import traceback
from typing import TextIO

from benchmarks.job import Job, Measure


def private_channel() -> TextIO:
    """The standard output for answers alone; what anybody else prints goes to standard error."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return channel


def prepare(job: Job) -> Measure:
    """Run the preparing part of a case, named `module:function` below benchmarks.cases."""
    module, function = job.case.split(":")
    measure: Measure = getattr(importlib.import_module(f"benchmarks.cases.{module}"), function)(job)
    return measure


def main() -> int:
    """Prepare, then measure until the input ends; a failure is answered and ends the process."""
    channel = private_channel()

    def answer(message: dict[str, object]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        measure = prepare(Job.from_json(sys.argv[1]))
        # The prepared records are ours, not the measured program's: its garbage collector would
        # walk over millions of them again and again.
        gc.collect()
        gc.freeze()
        answer({"ready": True})
        for _ in sys.stdin:
            answer({"sample": measure()})
    except Exception as error:
        traceback.print_exc()
        told = str(error).partition("\n")[0]
        answer({"error": f"{type(error).__name__}: {told}"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
