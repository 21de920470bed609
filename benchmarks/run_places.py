"""By hand: how many runs a get of ten looks into, and how often its messages are written.

`python -m benchmarks.run_places` puts one message to each queue, has maintenance seal and merge,
and so on: once where seals come too fast to take in earlier runs, and once where there is time for
it. What a run may have is a number of such seals. It counts, so its figures are the same on any
machine.
"""

from __future__ import annotations

import argparse
import random
import sys
import uuid
from dataclasses import dataclass
from statistics import fmean
from unittest.mock import patch

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.format.manifest import Row
from kmq_storage.maintenance import maintain
from kmq_storage.maintenance.manner import PLAIN

_TOPIC = "inbox"
_QUEUES = [f"user/{number:03}" for number in range(100)]
_MESSAGE = b"x" * 100
_SEALS = 160
#: A run has room for so many seals.
_ROOMS = (64, 10, 7.6, 5.1, 3.4, 2.1)


@dataclass(frozen=True)
class Counts:
    """Of each seal the runs that a get of the newest ten looked into, and of any ten."""

    newest: list[int]
    anywhere: list[int]
    runs: int
    #: How often a message that was sealed was written once more.
    written: float


def main() -> int:
    """Print a row for each size of seals."""
    argparse.ArgumentParser("python -m benchmarks.run_places", description=__doc__).parse_args()
    print("| seals in a run | newest ten, most | any ten, most | runs | written again |")
    for room in _ROOMS:
        fast, slow = _counts(room, 0), _counts(room, 1 << 60)
        cells = (f"{_cell(fast, column)} -> {_cell(slow, column)}" for column in range(4))
        print(f"| {room} |", " | ".join(cells), "|", flush=True)
    return 0


def _cell(counts: Counts, column: int) -> str:
    places = (counts.newest, counts.anywhere)
    if column < 2:
        return f"{fmean(places[column]):.1f}, {max(places[column])}"
    return f"{counts.runs}" if column == 2 else f"{counts.written:.2f}"


def _counts(room: float, rate: int) -> Counts:
    with patch.object(limits, "TAKEN_IN_BYTES", rate), patch.object(limits, "RUN_BYTES", 1 << 30):
        return _sealed(room)


def _sealed(room: float) -> Counts:
    chance = random.Random(1)
    newest, anywhere, seen = list[int](), list[int](), set[bytes]()
    merged = 0
    with kmq.open(f"memory://{uuid.uuid4().hex}", maintenance=False) as store:
        queues = store.keyed_queues(_TOPIC)
        for count in range(1, _SEALS + 1):
            queues.put_batch(_QUEUES, [_MESSAGE] * len(_QUEUES))
            maintain.tidy(store.log, seal_after=0.0, manner=PLAIN)
            runs = _runs(store)
            if count == 1:
                limits.RUN_BYTES = round(room * runs[0].weight)
            made = [run for run in runs if run.file not in seen]
            merged += sum(run.rows for run in made if run.rows > len(_QUEUES))
            seen |= {run.file for run in made}
            if count >= 20:
                newest.append(_places(queues, count - 10))
                anywhere += (_places(queues, chance.randint(0, count - 10)) for _ in range(20))
        return Counts(newest, anywhere, len(runs), merged / (len(_QUEUES) * _SEALS))


def _runs(store: kmq.Store) -> list[Row]:
    topic = store.log.refresh().topic(_TOPIC)
    return list(topic.index(0).rows(0, topic.partition(0).end))


def _places(queues: kmq.KeyedQueues, first: int) -> int:
    """How many runs a get of ten from an index on looks into."""
    found = queues._reader._looking(lambda index, _: index.places(_QUEUES[7].encode(), first, 10))
    return len(found[0])


if __name__ == "__main__":
    sys.exit(main())
