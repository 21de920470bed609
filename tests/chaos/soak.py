"""A producer that runs for long on a topic with short retention: does its store stay small?

    python -m tests.chaos.soak --minutes 60

Prints a line a minute: bytes on disk, files, how long opening takes, records held. Fails when the
second half of the run has clearly more of any than the first half had once collection set in.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import kmq_spark as kmq

#: Files stay for the grace time, so the store grows for that long, and a little more.
SETTLED_MINUTES = 20
_GROWTH_MAX = 1.5
_OPEN = """
import sys, time
import kmq_spark as kmq
kmq.open("memory://first").close()  # imports, which a long life doesn't make slower
begin = time.perf_counter()
with kmq.open(sys.argv[1], read_only=True) as store:
    store.offsets("t")
    print((time.perf_counter() - begin) * 1e3)
"""


@dataclass(frozen=True)
class Look:
    """The store at one minute."""

    minute: float
    megabytes: float
    files: int
    open_ms: float
    rows: int


def look(folder: Path, store: kmq.Store, minute: float) -> Look:
    """Measure the store from outside."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_blocks * 512 for path in files if path.exists())
    done = subprocess.run(
        [sys.executable, "-c", _OPEN, str(folder)], capture_output=True, text=True, check=True
    )
    rows = store.describe_topic("t").rows
    return Look(minute, size / 1e6, len(files), float(done.stdout), rows)


def send(store: kmq.Store, rate: int, stopped: threading.Event) -> None:
    """Send at a steady rate, ten batches a second."""
    with store.producer() as producer:
        number = 0
        while not stopped.wait(0.1):
            for _ in range(rate // 10):
                producer.send("t", b"%0100d" % number, key=b"k%d" % (number % 1000))
                number += 1


def run(folder: Path, minutes: float, rate: int) -> list[Look]:
    """Produce for some minutes, and look every minute."""
    looks, stopped, begin = [], threading.Event(), time.monotonic()
    with kmq.open(folder) as store:
        store.create_topic("t", partitions=2, retention=60.0)
        sender = threading.Thread(target=send, args=(store, rate, stopped))
        sender.start()
        try:
            while (passed := (time.monotonic() - begin) / 60) < minutes:
                time.sleep(min(60.0, (minutes - passed) * 60))
                looks.append(look(folder, store, (time.monotonic() - begin) / 60))
                print(looks[-1], flush=True)
        finally:
            stopped.set()
            sender.join()
    return looks


def grew(looks: list[Look]) -> list[str]:
    """What the second half has clearly more of than the first half had when it was settled."""
    settled = [each for each in looks if each.minute >= SETTLED_MINUTES]
    half = len(settled) // 2
    return [
        name
        for name in ("megabytes", "files", "rows")
        if half
        and max(getattr(each, name) for each in settled[half:])
        > _GROWTH_MAX * max(getattr(each, name) for each in settled[:half])
    ]


def main() -> int:
    """Run, and say whether the store stayed small."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=2_000, help="records a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kmq-soak-") as folder:
        found = grew(run(Path(folder, "store"), options.minutes, options.rate))
    print(f"grew: {', '.join(found)}" if found else "bounded")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
