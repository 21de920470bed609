"""The queue race of 2018, whole: python -m benchmarks.races.queues --queues 1000000 --messages N

Puts messages round-robin over the queues, checks ten of a random queue from a random index on, a
million times, and reads a tenth of the queues in order; every content and count is compared. By
batches, and all of it again with a call for each. Prints its tables beside the published ones.
"""

from __future__ import annotations

import argparse
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from benchmarks import page_cache
from benchmarks.races import queue_phases as phases
from benchmarks.races.queue_phases import Race
from benchmarks.races.workers import Crew, Took, existing_folder, own_folder, stored_bytes

CHECKS = 1_000_010
_MIB, _GB = 1 << 20, 1e9
#: The messages of the original.
_MOST = 2e9
#: What fewer messages take says nothing of those.
_TELLING = 1_000_000


@dataclass(frozen=True)
class Phase:
    """One step of the race: how much was done, and what it took."""

    name: str
    count: float
    took: Took

    @property
    def rate(self) -> float:
        """So many a second."""
        return self.count / self.took.seconds


#: A count, and the seconds that it took.
Done = tuple[float, float]
_READ = 200_000_000
#: What was published (docs/benchmarks.md) of sending, checking and consuming, and the total a
#: second where that was published too: it came from times that are less rounded.
PUBLISHED: tuple[tuple[str, Done, Done, Done, float | None], ...] = (
    (
        *("winner, C++, 4 cores", (2_000_000_009, 478.408), (CHECKS, 107.483), (_READ, 231.732)),
        2_691_946.44,
    ),
    ("3rd place's arkbriar, C++", (2e9, 710), (CHECKS, 120), (_READ, 140), None),
    ("LJY=+infinity, 4 cores", (2e9, 600), (CHECKS, 150), (_READ, 275), None),
)


@dataclass(frozen=True)
class Result:
    """One race: how, its phases, and the bytes on disk behind sorting and behind collecting."""

    by: str
    phases: dict[str, Phase]
    most: int
    stored: int

    @property
    def name(self) -> str:
        """How, for its line of a table."""
        return self.by.replace("-", " ")

    @property
    def sent(self) -> Done:
        """What was put, and the seconds until it was sorted and the log of it deleted."""
        took = (self.phases[name].took.seconds for name in ("put", "sort", "collect"))
        return self.phases["put"].count, sum(took)

    def done(self, name: str) -> Done:
        """The count and the seconds of a phase."""
        return self.phases[name].count, self.phases[name].took.seconds


def run(options: argparse.Namespace, folder: str, by: str) -> Result:
    """One race over a store of its own, which goes with it."""
    workers, path = options.processes * options.threads, f"{folder}/{by}"
    size = (options.queues, options.messages, options.checks, workers)
    races = [Race(path, *size, number, options.checks_at_once) for number in range(workers)]
    race, done = races[0], dict[str, Phase]()
    put, check, read = phases.PHASES[by]
    phases.prepare(race, options.compression)

    def do(name: str, count: float, work: Callable[[Race], Took], doers: Sequence[Race]) -> None:
        done[name] = Phase(name, count, crew.do(work, doers))
        took = done[name].took
        seconds = f"{took.seconds:>9.2f} s {took.cpu:>9.2f} s of CPU"
        told = f"{name}, {by}"
        print(f"{told:22} {count:>13,.0f} {seconds} {took.memory // _MIB:>6} MiB", flush=True)

    with Crew(options.processes, options.threads) as crew:
        do("put", race.rounds * race.queues, put, races)
        do("sort", race.rounds * race.queues, phases.sort, races[:1])
        most = stored_bytes(path)
        do("collect", 1, phases.collect, races[:1])
        stored = stored_bytes(path)
        do("reopen", 1, phases.reopen, races[:1])
        do("check", sum(each.checked for each in races), check, races)
        do("read", sum(map(len, map(phases.to_read, races))) * race.rounds, read, races)
        crew.do(phases.expect_counts, races)  # not before: it reads from all queues
    with Crew(1, 1) as crew:  # those of before have pages mapped, which are not dropped
        do("check cold", phases.COLD, phases.check_cold, races[:1])
    shutil.rmtree(path)
    return Result(by, done, most, stored)


def tables(results: Sequence[Result]) -> str:
    """The figures beside the published ones, and what the whole race would take."""
    lines = [
        "| | messages | send s | check s | consume s | sent/s | checks/s | consumed/s | TPS |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in results:
        name = f"kmq, {each.name}, sorting in send"
        lines.append(_line(name, each.sent, each.done("check"), each.done("read"), None))
    lines += [_line(*published) for published in PUBLISHED]
    lines += ["", "| kmq | put/s | sorted/s | checks/s | read/s |", "|---|---|---|---|---|"]
    for each in results:
        rates = (f"{each.phases[n].rate:,.0f}" for n in ("put", "sort", "check", "read"))
        lines.append(f"| {each.name} | {' | '.join(rates)} |")
    for each in results:
        lines += ["", f"{each.name.capitalize()}:", *_rest(each)]
    return "\n".join(lines)


def _rest(result: Result) -> Iterator[str]:
    by, (count, seconds) = result.phases, result.sent
    memory = max(phase.took.memory for phase in by.values()) // _MIB
    yield f"Opened, with the first get, in {by['reopen'].took.seconds:.2f} s (limit 1 s)."
    yield f"A process has at most {memory} MiB above the page cache (limit 1 GB)."
    yield f"A check takes {1e3 / by['check cold'].rate:.2f} ms where nothing is in memory."
    most, each = result.most / count, result.stored / count
    yield f"{each:.0f} bytes on disk a message, {most:.0f} until the log is deleted."
    if count < _TELLING:
        return
    hours, whole, end = _MOST * seconds / count / 3600, _MOST * most / _GB, _MOST * each / _GB
    yield f"{_MOST:,.0f} messages need {whole:,.0f} GB, then {end:,.0f}; {hours:.1f} h to put."


def _line(name: str, sent: Done, checks: Done, consumed: Done, published: float | None) -> str:
    """What was done in each phase, and in how many seconds; the total unless it was published."""
    phases = (sent, checks, consumed)
    seconds = " | ".join(f"{phase[1]:.1f}" for phase in phases)
    rates = " | ".join(f"{count / took:,.0f}" for count, took in phases)
    total = published or sum(count for count, _ in phases) / sum(took for _, took in phases)
    return f"| {name} | {sent[0]:,.0f} | {seconds} | {rates} | {total:,.0f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the race and print its tables."""
    options = _parsed(arguments)
    with own_folder(options.folder) as folder:
        with page_cache.filled(folder) if options.fill_memory else nullcontext():
            print(tables([run(options, folder, by) for by in options.by]))
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"CPU {used.ru_utime + used.ru_stime:.1f} s")


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.races.queues")
    parser.add_argument("--queues", type=int, default=1_000_000)
    rounds = "in whole rounds of all queues"
    parser.add_argument("--messages", type=int, default=20_000_000, help=rounds)
    parser.add_argument("--checks", type=int, default=CHECKS)
    ways = list(phases.PHASES)
    whole = "each is a race of its own"
    parser.add_argument("--by", nargs="+", choices=ways, default=ways, help=whole)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--compression", choices=["lz4", "zstd"], help="of what is sorted")
    at_once = "of each worker (more take more memory)"
    parser.add_argument("--checks-at-once", type=int, default=Race.checks_at_once, help=at_once)
    parser.add_argument("--fill-memory", action="store_true", help=page_cache.HELP)
    room = "where stores are made, one at a time (some 310 bytes a message)"
    parser.add_argument("--folder", type=existing_folder, help=room)
    options = parser.parse_args(arguments)
    for name in ("queues", "messages", "checks", "checks_at_once", "processes", "threads"):
        if getattr(options, name) < 1:
            option = f"--{name.replace('_', '-')}"
            parser.error(f"{option} is {getattr(options, name)}: at least 1 is needed")
    if options.messages < options.queues:
        parser.error(
            f"--messages is {options.messages}, --queues {options.queues}: each queue gets as many "
            "messages, at least one"
        )
    workers = options.processes * options.threads
    if workers > options.queues:
        parser.error(f"--queues is {options.queues}: {workers} workers share them, each has one")
    return options


if __name__ == "__main__":
    main()
