"""The queue race of 2018, whole: python -m benchmarks.races.queues --queues 1000000 --messages N

Puts messages round-robin over the queues, checks ten of a random queue from a random index on, a
million times, and reads a tenth of the queues in order; every content and count is compared. By
batches, and one by one for a share of the work. Prints its table beside the published ones.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import kmq_spark as kmq
from benchmarks.races.queue_messages import messages, name_of
from kmq_spark.client.keyed_queues import KeyedQueues

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[np.int64]

TOPIC = "race"
CHECKS, CHECKED = 1_000_010, 10
READ_SHARE = 10
#: Messages of one commit, and queues of one read.
_BATCH, _ASKED = 1 << 19, 1 << 17
#: Of one-by-one calls so many are made: they are measured, not endured.
_ONE_BY_ONE = 500_000
#: What was published: put/s, checks/s, messages read/s, all of it (docs/benchmarks.md).
PUBLISHED = (
    ("winner, C++, 4 cores", 4_180_532, 9_304, 863_066, 2_691_946),
    ("rank 36, Java, 4 cores", 1_500_000, None, None, 1_260_000),
)


@dataclass(frozen=True)
class Race:
    """What one process does: the queues whose number it has as remainder."""

    url: str
    queues: int
    messages: int
    checks: int
    processes: int
    number: int

    @property
    def mine(self) -> _Numbers:
        """The queues of this process."""
        return np.arange(self.number, self.queues, self.processes)

    @property
    def rounds(self) -> int:
        """The messages of each queue."""
        return self.messages // self.queues

    def random(self, count: int) -> tuple[_Numbers, _Numbers]:
        """Random queues, and an index some ten before a random one of each."""
        rng = np.random.default_rng(self.number)
        indexes = np.maximum(rng.integers(0, self.rounds, count) - CHECKED, 0)
        return rng.integers(0, self.queues, count), indexes


def put(race: Race) -> float:
    """Put every message of its queues; the seconds without the making of them."""
    mine, seconds = race.mine, 0.0
    names = pa.array([name_of(queue) for queue in mine.tolist()], pa.binary())
    with kmq.open(race.url) as store:
        queues = store.keyed_queues(TOPIC)
        for index in range(race.rounds):
            for first in range(0, len(mine), _BATCH):
                some = mine[first : first + _BATCH]
                values = messages(some, np.full(len(some), index))
                batch = pa.record_batch({"queue": names.slice(first, len(some)), "value": values})
                began = time.perf_counter()
                queues.put_arrow(batch)
                seconds += time.perf_counter() - began
    return seconds


def seal(race: Race) -> float:
    """Sort all that was put into runs."""
    began = time.perf_counter()
    with kmq.open(race.url) as store:
        while store.seal().conflicts:
            pass  # another one is at it
        store.compact(TOPIC)
        store.checkpoint()
    return time.perf_counter() - began


def check(race: Race) -> float:
    """Get ten messages of random queues in batches; the seconds without the comparing."""
    asked, indexes = race.random(race.checks // race.processes)
    return _compared(race, asked, indexes, CHECKED, len(asked))


def read(race: Race) -> float:
    """Read a share of its queues whole; the seconds without the comparing."""
    asked = race.mine[::READ_SHARE]
    asked = asked[np.argsort(np.array([name_of(queue) for queue in asked.tolist()]))]
    return _compared(race, asked, np.zeros(len(asked), np.int64), race.rounds, _ASKED)


def _compared(race: Race, asked: _Numbers, firsts: _Numbers, most: int, step: int) -> float:
    seconds = 0.0
    step = max(min(step, (1 << 21) // max(most, 1)), 1)
    with kmq.open(race.url, read_only=True) as store:
        queues = store.keyed_queues(TOPIC)
        for at in range(0, len(asked), step):
            some, since = asked[at : at + step], firsts[at : at + step]
            names = pa.array([name_of(queue) for queue in some.tolist()], pa.binary())
            began = time.perf_counter()
            found = queues.get_many(names, since, most)
            seconds += time.perf_counter() - began
            _expect(found, some, since, np.minimum(race.rounds - since, most))
    return seconds


def _expect(found: pa.Table, asked: _Numbers, firsts: _Numbers, counts: _Numbers) -> None:
    """AssertionError unless all messages that were asked for are there, and no others."""
    queues = np.repeat(asked, counts)
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    indexes = np.arange(len(queues)) - begins + np.repeat(firsts, counts)
    assert found.num_rows == len(queues), "the number of messages"
    assert (found["index"].to_numpy() == indexes).all(), "the indexes of messages"
    expected = messages(queues, indexes)
    assert pc.all(pc.equal(found["value"], pa.chunked_array([expected]))).as_py(), "a content"


def put_one_by_one(race: Race) -> float:
    """Put some messages with a call for each."""
    mine = race.mine[: _ONE_BY_ONE // race.processes]
    names = [name_of(queue) for queue in mine.tolist()]
    values = messages(mine, np.full(len(mine), race.rounds)).to_pylist()
    with kmq.open(race.url) as store:
        queues = store.keyed_queues(TOPIC)
        began = time.perf_counter()
        for name, value in zip(names, values, strict=True):
            queues.put(name, value)
        queues.flush()
        return time.perf_counter() - began


def check_one_by_one(race: Race) -> float:
    """Get ten messages of some random queues with a call for each."""
    asked, indexes = race.random(20_000 // race.processes)
    return _got(
        race, ((name_of(q), q, [i]) for q, i in zip(asked.tolist(), indexes.tolist(), strict=True))
    )


def read_one_by_one(race: Race) -> float:
    """Read some queues whole, ten messages a call."""
    asked = race.mine[::READ_SHARE][: 200_000 // race.processes // max(race.rounds, 1) + 1]
    steps = list(range(0, race.rounds, CHECKED))
    return _got(race, ((name_of(queue), queue, steps) for queue in asked.tolist()))


def _got(race: Race, asked: Iterator[tuple[bytes, int, list[int]]]) -> float:
    seconds = 0.0
    with kmq.open(race.url, read_only=True) as store:
        queues: KeyedQueues = store.keyed_queues(TOPIC)
        queues.size(b"Queue-0")
        for name, queue, firsts in asked:
            began = time.perf_counter()
            found = [queues.get(name, first, CHECKED) for first in firsts]
            seconds += time.perf_counter() - began
            for first, got in zip(firsts, found, strict=True):
                count = min(race.rounds - first, CHECKED)
                expected = messages(np.full(count, queue), np.arange(first, first + count))
                assert got[:count] == expected.to_pylist(), "a content"
    return seconds


def timed(pool: ProcessPoolExecutor, work: Callable[[Race], float], races: list[Race]) -> float:
    """The seconds of the slowest process."""
    return max(pool.map(work, races))


def run(options: argparse.Namespace, folder: str) -> list[tuple[str, float, float]]:
    """Every phase: its name, what was done, and the seconds."""
    make = partial(
        Race, f"{folder}/store", options.queues, options.messages, options.checks, options.processes
    )
    races = [make(number) for number in range(options.processes)]
    with kmq.open(races[0].url) as store:
        store.keyed_queues(TOPIC)
    put_count = races[0].rounds * options.queues
    read_count = sum(len(race.mine[::READ_SHARE]) for race in races) * races[0].rounds
    slow_reads = sum(
        len(race.mine[::READ_SHARE][: 200_000 // race.processes // max(race.rounds, 1) + 1])
        for race in races
    )
    done: list[tuple[str, float, float]] = []
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        phases: list[tuple[str, float, Callable[[Race], float], list[Race]]] = [
            ("put", put_count, put, races),
            ("sort", put_count, seal, races[:1]),
            ("check", options.checks, check, races),
            ("read", read_count, read, races),
            ("check one by one", 20_000, check_one_by_one, races),
            ("read one by one", slow_reads * races[0].rounds, read_one_by_one, races),
            ("put one by one", min(_ONE_BY_ONE, options.queues), put_one_by_one, races),
        ]
        for name, count, work, doers in phases:
            done.append((name, count, timed(pool, work, doers)))
            print(f"{name:20} {count:>13,.0f} {done[-1][2]:>9.1f} s", flush=True)
    return done


def table(done: list[tuple[str, float, float]]) -> str:
    """The figures beside the published ones."""
    rate = {name: count / seconds for name, count, seconds in done}
    whole = [each for each in done if each[0] in ("put", "sort", "check", "read")]
    total = sum(n for name, n, _ in whole if name != "sort") / sum(s for _, _, s in whole)
    lines = ["| | put/s | checks/s | read/s | all of it/s |", "|---|---|---|---|---|"]
    fast = [rate["put"], rate["check"], rate["read"], total]
    slow = [*(rate[f"{name} one by one"] for name in ("put", "check", "read")), None]
    for name, *figures in (("kmq, batches", *fast), ("kmq, one by one", *slow), *PUBLISHED):
        shown = " | ".join("" if figure is None else f"{figure:,.0f}" for figure in figures)
        lines.append(f"| {name} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    """Run the race and print its table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.races.queues")
    parser.add_argument("--queues", type=int, default=1_000_000)
    parser.add_argument("--messages", type=int, default=20_000_000)
    parser.add_argument("--checks", type=int, default=CHECKS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", help="where the store is made (about 250 bytes a message)")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(dir=options.folder)
    try:
        print(table(run(options, folder)))
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"CPU {used.ru_utime + used.ru_stime:.1f} s, {used.ru_maxrss // 1024} MiB at most")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
