"""The messaging race of 2017, whole: python -m benchmarks.races.messages --messages N

Ten producers send to 90 topics and 10 queues, every tenth message to a queue, and flush; their
process is killed with SIGKILL. Another one has ten consumers with a queue and nine topics each, and
one more topic of a neighbour's; each compares every message field by field, and its counter per
name and producer. By batches of Arrow, and one by one through `kmq_spark.openmessaging`. Making and
comparing messages is timed, as in the original.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from benchmarks.races import message_phases as phases
from benchmarks.races.message_phases import USERS, Task
from benchmarks.races.race_messages import NAMES
from benchmarks.races.workers import (
    Took,
    existing_folder,
    in_threads,
    own_folder,
    stored_bytes,
    together,
)

#: What was published: seconds to send and to pull 40,000,000 messages, and the score of it.
PUBLISHED = (
    ("26th of 1,959, Java, 4 cores", 73.630, 31.597, 380_130.0),
    ("32nd", 73.952, 35.995, 363_811.0),
)
_PUBLISHED_MESSAGES = 40_000_000
_SPAWN = get_context("spawn")
_MIB = 1 << 20


@dataclass(frozen=True)
class Result:
    """One run: how, the seconds of both phases, memory of a process, bytes on disk a message."""

    name: str
    messages: int
    send: float
    pull: float
    memory: int
    stored: float


def _serve(work: Callable[[Task], Took], tasks: Sequence[Task], pipe: Connection) -> None:
    """Do the tasks when told to, tell what they took, and wait to be killed."""
    pa.array([0])  # with its first array pyarrow loads pandas, where there is one
    pipe.send("ready")
    pipe.recv()
    try:
        pipe.send(in_threads(work, tasks))
    except BaseException as error:
        pipe.send(error)
        raise
    pipe.recv()


def timed(work: Callable[[Task], Took], crews: Sequence[Sequence[Task]]) -> tuple[float, int]:
    """The seconds until each of these processes has done its tasks, and memory; then they die."""
    children: list[tuple[Any, Connection]] = []
    for tasks in crews:
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_serve, args=(work, tasks, theirs), daemon=True)
        process.start()
        children.append((process, ours))
    try:
        for _, pipe in children:
            pipe.recv()
        began = time.perf_counter()
        for _, pipe in children:
            pipe.send("go")
        found = [pipe.recv() for _, pipe in children]
        seconds = time.perf_counter() - began
    finally:
        for process, _ in children:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return seconds, together(found).memory


def run(messages: int, folder: str, *, by: str, users: str) -> Result:
    """One run of the race."""
    path = f"{folder}/{by}-{users}"
    phases.prepare(path)
    tasks = [Task(path, number, messages // (USERS * len(NAMES))) for number in range(USERS)]
    crews = [tasks] if users == "threads" else [[task] for task in tasks]
    send, pull = phases.PHASES[by]
    sending, memory = timed(send, crews)
    stored = stored_bytes(path)
    pulling, more = timed(pull, crews)
    phases.expect_no_keys(path)
    shutil.rmtree(path)
    count = tasks[0].each * USERS * len(NAMES)
    return Result(f"{by}, {users}", count, sending, pulling, max(memory, more), stored / count)


def table(results: Sequence[Result]) -> str:
    """The figures beside the published ones."""
    lines = [
        "| | messages | send s | pull s | sent/s | pulled/s | score | bytes on disk | MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in results:
        score = each.messages / (each.send + each.pull)
        line = _line(f"kmq, {each.name}", each.messages, each.send, each.pull, score)
        lines.append(f"{line} {each.stored:.0f} | {each.memory // _MIB} |")
    lines += [f"{_line(name, _PUBLISHED_MESSAGES, *took)} | |" for name, *took in PUBLISHED]
    return "\n".join(lines)


def _line(name: str, count: int, send: float, pull: float, score: float) -> str:
    rates = f"{count / send:,.0f} | {count / pull:,.0f} | {score:,.0f}"
    return f"| {name} | {count:,} | {send:.1f} | {pull:.1f} | {rates} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the race and print its table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.races.messages")
    rounds = "in whole thousands; 4000000, 40000000: long"
    parser.add_argument("--messages", type=int, default=400_000, help=rounds)
    parser.add_argument(
        "--by", nargs="+", choices=list(phases.PHASES), default=["batches", "calls"]
    )
    users = ["threads", "processes"]
    parser.add_argument("--users", nargs="+", choices=users, default=users)
    room = "where stores are made (some 300 bytes a message)"
    parser.add_argument("--folder", type=existing_folder, help=room)
    options = parser.parse_args(arguments)
    least = USERS * len(NAMES)
    if options.messages < least:
        parser.error(
            f"--messages is {options.messages}: each of {USERS} producers sends to each of "
            f"{len(NAMES)} names, so at least {least} are needed"
        )
    results: list[Result] = []
    with own_folder(options.folder) as folder:
        for by in options.by:
            for kind in options.users:
                results.append(run(options.messages, folder, by=by, users=kind))
                print(table(results[-1:]).splitlines()[2], flush=True)
    print(table(results))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CPU {used.ru_utime + used.ru_stime:.1f} s")


if __name__ == "__main__":
    main()
