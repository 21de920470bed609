"""The phases of the queue race, each as one worker does its share of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import kmq_spark as kmq
from benchmarks.races.queue_messages import messages, name_of
from benchmarks.races.workers import Meter, Took
from kmq_spark.client.keyed.queues import KeyedQueues

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[np.int64]

TOPIC, CHECKED, READ_SHARE = "race", 10, 10
#: Messages of one commit, and of one read.
_BATCH, _TOGETHER = 1 << 19, 1 << 20
#: Messages that are made and compared at a time: what the race has of its own takes no memory.
_COMPARED = 1 << 16
#: Calls one by one after which what they gave is compared.
_CALLS = 1 << 12
#: Few, since what is read ahead for one is there for the next ones.
COLD = 60


@dataclass(frozen=True)
class Race:
    """What one worker does: it puts to the queues whose number has its own as remainder."""

    url: str
    queues: int
    messages: int
    checks: int
    workers: int
    number: int
    #: Random queues are asked for together, since each batch of a run is gone through for all.
    checks_at_once: int = 1 << 19

    @property
    def mine(self) -> _Numbers:
        """The queues that it puts to."""
        return np.arange(self.number, self.queues, self.workers)

    @property
    def rounds(self) -> int:
        """The messages of each queue."""
        return self.messages // self.queues

    @property
    def checked(self) -> int:
        """The checks that it makes: all workers together make all of them."""
        return len(range(self.number, self.checks, self.workers))

    def random(self, count: int) -> tuple[_Numbers, _Numbers]:
        """Random queues, and an index some ten before a random one of each."""
        rng = np.random.default_rng(self.number)
        indexes = np.maximum(rng.integers(0, self.rounds, count) - CHECKED, 0)
        return rng.integers(0, self.queues, count), indexes


def prepare(race: Race, compression: str | None) -> None:
    """Make the topic."""
    with kmq.open(race.url) as store:
        store.keyed_queues(TOPIC)
        if compression is not None:
            store.alter_topic(TOPIC, compression=compression)


def put(race: Race) -> Took:
    """Put every message of its queues; the making of them is not timed."""
    mine, meter = race.mine, Meter()
    names = pa.array([name_of(queue) for queue in mine.tolist()], pa.binary())
    with kmq.open(race.url) as store:
        queues = store.keyed_queues(TOPIC)
        for index in range(race.rounds):
            for first in range(0, len(mine), _BATCH):
                some = mine[first : first + _BATCH]
                values = messages(some, np.full(len(some), index))
                batch = pa.record_batch({"queue": names.slice(first, len(some)), "value": values})
                with meter.timing():
                    queues.put_arrow(batch)
    return meter.took()


def sort(race: Race) -> Took:
    """Sort all that was put into runs, two at a time."""
    meter = Meter(time.process_time)
    with kmq.open(race.url) as store, meter.watching(), meter.timing():
        while store.seal().conflicts:
            pass  # another one is at it
        store.compact(TOPIC)
        store.checkpoint()
    return meter.took()


def collect(race: Race) -> Took:
    """Delete the log of what was sorted, and the runs that were merged."""
    meter = Meter(time.process_time)
    with kmq.open(race.url) as store, meter.timing():
        store.collect(grace=0)
    return meter.took()


def reopen(race: Race) -> Took:
    """Open the store and get from one queue."""
    meter = Meter()
    with meter.timing(), kmq.open(race.url, read_only=True) as store:
        found = store.keyed_queues(TOPIC).get(name_of(0), 0, 1)
    assert found == messages(np.zeros(1, np.int64), np.zeros(1, np.int64)).to_pylist(), "a content"
    return meter.took()


def check(race: Race) -> Took:
    """Get ten messages of random queues in batches; the comparing is not timed."""
    asked, indexes = race.random(race.checked)
    return _compared(race, asked, indexes, CHECKED, race.checks_at_once)


def to_read(race: Race) -> _Numbers:
    """The queues that a worker reads: of every tenth its share in the order of names."""
    asked = np.arange(0, race.queues, READ_SHARE)
    asked = asked[np.argsort(np.array([name_of(queue) for queue in asked.tolist()]))]
    return np.array_split(asked, race.workers)[race.number]


def read(race: Race) -> Took:
    """Read a share of the queues whole, and what is too much; the comparing is not timed."""
    asked = to_read(race)
    step = max(_TOGETHER // max(race.rounds, 1), 1)
    return _compared(race, asked, np.zeros(len(asked), np.int64), race.rounds + 1, step)


def expect_counts(race: Race) -> Took:
    """AssertionError unless the last message of each of its queues is there, and none behind it."""
    mine = race.mine
    return _compared(race, mine, np.full(len(mine), race.rounds - 1), 2, race.checks_at_once)


def _compared(race: Race, asked: _Numbers, firsts: _Numbers, most: int, step: int) -> Took:
    meter = Meter()
    with kmq.open(race.url, read_only=True) as store:
        queues = store.keyed_queues(TOPIC)
        for at in range(0, len(asked), step):
            some, since = asked[at : at + step], firsts[at : at + step]
            names = pa.array([name_of(queue) for queue in some.tolist()], pa.binary())
            with meter.timing():
                found = queues.get_many(names, since, most)
            _expect(found, some, since, np.minimum(race.rounds - since, most))
            del found, names  # else they are there while the next ones are got
    return meter.took()


def _expect(found: pa.Table, asked: _Numbers, firsts: _Numbers, counts: _Numbers) -> None:
    """AssertionError unless all messages that were asked for are there, and no others."""
    assert found.num_rows == counts.sum(), "the number of messages"
    step, row = max(_COMPARED // max(int(counts.max(initial=0)), 1), 1), 0
    for at in range(0, len(asked), step):
        some = slice(at, at + step)
        names = pa.array([name_of(queue) for queue in asked[some].tolist()], pa.binary())
        names = names.take(pa.array(np.repeat(np.arange(len(names)), counts[some])))
        queues = np.repeat(asked[some], counts[some])
        begins = np.repeat(np.cumsum(counts[some]) - counts[some], counts[some])
        indexes = np.arange(len(queues)) - begins + np.repeat(firsts[some], counts[some])
        part, row = found.slice(row, len(queues)), row + len(queues)
        expected = {"queue": names, "index": indexes, "value": messages(queues, indexes)}
        for name, column in expected.items():
            assert part[name].equals(pa.chunked_array([column])), f"the {name} of a message"


def put_one_by_one(race: Race) -> Took:
    """Put every message of its queues with a call for each; the making of them is not timed."""
    mine, meter = race.mine, Meter()
    names, count = [name_of(queue) for queue in mine.tolist()], race.rounds * len(mine)
    with kmq.open(race.url) as store:
        queues = store.keyed_queues(TOPIC)
        for first in range(0, count, _BATCH):
            indexes, places = np.divmod(np.arange(first, min(first + _BATCH, count)), len(mine))
            values = messages(mine[places], indexes).to_pylist()
            some = [names[place] for place in places.tolist()]
            with meter.timing():
                for name, value in zip(some, values, strict=True):
                    queues.put(name, value)
                queues.flush()  # else the rest goes to the disk while the next ones are made
    return meter.took()


def check_one_by_one(race: Race) -> Took:
    """Get ten messages of random queues with a call for each; the comparing is not timed."""
    asked, indexes = race.random(race.checked)
    meter = Meter()
    with kmq.open(race.url, read_only=True) as store:
        _check(race, store.keyed_queues(TOPIC), asked, indexes, meter)
    return meter.took()


def _check(
    race: Race, queues: KeyedQueues, asked: _Numbers, firsts: _Numbers, meter: Meter
) -> None:
    counts = _got(queues, asked, firsts, meter)
    assert (counts == np.minimum(race.rounds - firsts, CHECKED)).all(), "the number of messages"


def check_cold(race: Race) -> Took:
    """The same from files of which nothing is in memory."""
    asked, indexes = race.random(COLD + 1)
    for file in Path(race.url).rglob("*.arrow"):
        fd = os.open(file, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    faults, read, meter = getrusage(RUSAGE_SELF).ru_majflt, _read_bytes(), Meter()
    with kmq.open(race.url, read_only=True) as store:
        queues = store.keyed_queues(TOPIC)
        _check(race, queues, asked[:1], indexes[:1], Meter())
        _check(race, queues, asked[1:], indexes[1:], meter)
    faults, read = getrusage(RUSAGE_SELF).ru_majflt - faults, _read_bytes() - read
    told = f"{faults / (COLD + 1):.2f} major faults and {read / (COLD + 1) / (1 << 20):.1f} MiB"
    print(f"{told} of the disk a check, the first `get` of the process among them")
    return meter.took()


def _read_bytes() -> int:
    """What the disk has read for this process."""
    (line,) = (x for x in Path("/proc/self/io").read_text().splitlines() if "read_bytes" in x)
    return int(line.split()[1])


def read_one_by_one(race: Race) -> Took:
    """Read its queues whole, in turn, ten messages a call; what is too much is read, too."""
    left, meter = to_read(race), Meter()
    firsts = np.zeros(len(left), np.int64)
    with kmq.open(race.url, read_only=True) as store:
        queues = store.keyed_queues(TOPIC)
        while len(left):
            counts = _got(queues, left, firsts, meter)
            firsts, more = firsts + counts, counts == CHECKED
            assert (firsts[~more] == race.rounds).all(), "the number of messages"
            left, firsts = left[more], firsts[more]
    return meter.took()


def _got(queues: KeyedQueues, asked: _Numbers, firsts: _Numbers, meter: Meter) -> _Numbers:
    """How many messages a `get` of ten gives of each queue; the comparing is not timed."""
    counts = np.zeros(len(asked), np.int64)
    for at in range(0, len(asked), _CALLS):
        some, since = asked[at : at + _CALLS], firsts[at : at + _CALLS]
        calls = list(zip(map(name_of, some.tolist()), since.tolist(), strict=True))
        with meter.timing():
            found = [queues.get(name, first, CHECKED) for name, first in calls]
        counts[at : at + _CALLS] = _expect_lists(found, some, since)
    return counts


def _expect_lists(found: list[list[bytes]], asked: _Numbers, firsts: _Numbers) -> _Numbers:
    """How many messages each queue gave; AssertionError unless they are as they were put."""
    counts = np.array([len(each) for each in found])
    begins = np.repeat(np.cumsum(counts) - counts - firsts, counts)
    indexes = np.arange(counts.sum()) - begins
    expected = messages(np.repeat(asked, counts), indexes).to_pylist()
    given = [message for each in found for message in each]
    assert given == expected, "a content"
    assert {type(each) for each in given} <= {bytes}, "the type of a message"
    return counts


_Phase = Callable[[Race], Took]
#: How messages are put, checked and read.
PHASES: dict[str, tuple[_Phase, _Phase, _Phase]] = {
    "batches": (put, check, read),
    "one-by-one": (put_one_by_one, check_one_by_one, read_one_by_one),
}
