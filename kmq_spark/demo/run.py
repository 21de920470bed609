"""The demo from start to end: flights in, a kill, delays out, an archive, and the proof.

The story is in `_run`, the part with the kill in `_watch`, the proof in `_checks`.
"""

from __future__ import annotations

import logging
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn, TextIO

import pyarrow as pa

import kmq_spark as kmq
from kmq_spark.demo import flights, report, totals
from kmq_spark.demo.archive import Archive
from kmq_spark.demo.folder import Folder, clean_folder
from kmq_spark.demo.plot import try_plot
from kmq_spark.demo.produce import durable_records
from kmq_spark.demo.producing import Producing
from kmq_spark.demo.progress import Progress
from kmq_spark.demo.session import missing_for_spark
from kmq_spark.demo.steps import DELAYS, FLIGHTS, GROUP, Steps
from kmq_spark.demo.with_spark import SparkSteps
from kmq_spark.demo.without_spark import PlainSteps
from kmq_storage.environment import SYSTEM

CANCELLED = 130
_QUICK_FLIGHTS = 40_000
#: Seconds for all flights, or the few of a quick run: the rate at which they are produced.
_PRODUCING_SECONDS, _QUICK_SECONDS = 18.0, 6.0
_FLIGHTS_PARTITIONS, _DELAYS_PARTITIONS = 4, 2
_KILL_AT = 0.45
_TICK_SECONDS = 0.2
#: After this many seconds without progress, something is broken: the demo stops.
_STALLED_SECONDS = 90.0


def main(store: str | None = None, json_output: bool = False, quick: bool = False) -> int:
    """Run the demo in the folder `store`; 0 when every check holds, 1 when not, 130 on Ctrl-C."""
    target = sys.stderr if json_output else sys.stdout
    try:
        with _cancellable(), clean_folder(store) as folder:
            found = _run(folder, target, _QUICK_FLIGHTS if quick else None)
    except KeyboardInterrupt:
        print("\nCancelled; nothing runs on, and the next run starts clean.", file=target)
        return CANCELLED
    except kmq.KmqError as error:
        if target.isatty():
            print("\r\x1b[K", end="", file=target, flush=True)  # over the line that changes
        print(f"kmq demo: {error}", file=sys.stderr)
        return 1
    (report.print_json if json_output else report.print_text)(found, sys.stdout)
    for check in found.checks:
        if not check.ok:
            print(f"kmq demo: a check failed: {check.claim}: {check.numbers}", file=sys.stderr)
    return 0 if found.ok else 1


def _run(folder: Folder, target: TextIO, limit: int | None) -> report.Report:
    started = SYSTEM.monotonic()
    data = flights.read_flights(limit)
    progress = Progress(target, total=data.num_rows)
    rate = data.num_rows / (_QUICK_SECONDS if limit else _PRODUCING_SECONDS)
    with ExitStack() as stack:
        store = stack.enter_context(kmq.open(folder.store))
        store.create_topic(FLIGHTS, partitions=_FLIGHTS_PARTITIONS)
        store.create_topic(DELAYS, partitions=_DELAYS_PARTITIONS)
        steps = _choose_steps(folder, store, progress)
        stack.callback(steps.close)
        producing = Producing(folder, FLIGHTS, rate=rate, limit=limit)
        stack.callback(producing.kill)
        stack.callback(_ignore_signals)
        steps.start()
        killed_at = _watch(store, steps, producing, progress)
        progress.say(f"Archiving topic {FLIGHTS} with {steps.name} ...")
        archive = steps.archive(folder.archive)
        delays = totals.of_topic(store, DELAYS)
        names = flights.airline_names()
        plot = try_plot(delays, names, folder.plot)
        return report.Report(
            engine=steps.name,
            seconds=round(SYSTEM.monotonic() - started, 1),
            folder=folder,
            archive=archive,
            plot=str(plot) if plot else None,
            lag=_lag(store),
            carriers=report.rank_carriers(delays, names),
            checks=_checks(store, data, limit, killed_at, archive=archive, delays=delays),
        )


def _choose_steps(folder: Folder, store: kmq.Store, progress: Progress) -> Steps:
    missing = missing_for_spark()
    if missing is None:
        progress.say("Starting Spark ...")
        return SparkSteps(folder)
    progress.say(f"The Spark part is left out: {missing}")
    progress.say("The rest runs without: a consumer group computes the delays in this process.")
    return PlainSteps(store)


def _watch(store: kmq.Store, steps: Steps, producing: Producing, progress: Progress) -> int:
    """Wait until all flights are processed; kill the producer on the way, and return where."""
    killed_at = 0
    seen, moved = (0, 0), SYSTEM.monotonic()
    producing.start()
    while True:
        # Asked before counting, so that the counts include all that a finished producer has sent.
        finished = producing.finished()
        steps.work(_TICK_SECONDS)
        now = durable_records(store, FLIGHTS), _processed(store)
        progress.show(*now, f"killed at {killed_at:,}" if killed_at else "not killed yet")
        if finished and now[0] == now[1]:
            return killed_at
        if not killed_at and not finished and now[0] >= _KILL_AT * progress.total:
            killed_at = _kill(store, producing, progress)
        if now != seen:
            seen, moved = now, SYSTEM.monotonic()
        if SYSTEM.monotonic() - moved > _STALLED_SECONDS:
            message = f"Nothing moves: {now[0]:,} flights produced, {now[1]:,} processed."
            raise kmq.KmqTimeoutError(message)


def _kill(store: kmq.Store, producing: Producing, progress: Progress) -> int:
    producing.kill()
    durable = durable_records(store, FLIGHTS)
    progress.say(
        f"Producer killed with SIGKILL; {durable:,} flights are durable. Starting it again."
    )
    producing.start()
    return durable


def _processed(store: kmq.Store) -> int:
    try:
        committed = store.describe_group(GROUP).committed
    except kmq.NotFoundError:
        return 0  # the first commit makes the group
    return sum(committed.get(FLIGHTS, {}).values())


def _lag(store: kmq.Store) -> int:
    lags = store.describe_group(GROUP).lag
    return sum(sum(partitions.values()) for partitions in lags.values())


def _checks(
    store: kmq.Store,
    data: pa.Table,
    limit: int | None,
    killed_at: int,
    *,
    archive: Archive,
    delays: pa.Table,
) -> list[report.Check]:
    in_package = min(flights.count_flights(), limit or sys.maxsize)
    wanted = totals.of_flights(data)
    counted = sum(delays["flights"].to_pylist())
    return [
        report.equal("flights read from the package, against its lines", data.num_rows, in_package),
        report.between("flights durable at the kill", killed_at, 1, in_package - 1),
        report.equal("flights in the topic", durable_records(store, FLIGHTS), in_package),
        report.equal("flights in the archive", archive.rows, in_package),
        report.equal("different flights in the archive", archive.different_ids, in_package),
        report.equal("flights counted in topic delays", counted, in_package),
        report.equal(
            "carrier days other than the package's own", report.count_differences(delays, wanted), 0
        ),
        report.equal("lag of the group", _lag(store), 0),
    ]


@contextmanager
def _cancellable() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM end the run with its clean-up."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, _cancel)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancel(*_details: object) -> NoReturn:
    # Interrupted libraries (Spark's bridge to Java above all) would log and warn at length.
    logging.disable()
    warnings.simplefilter("ignore")
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    # The clean-up is short and bounded; a second Ctrl-C would leave something running.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
