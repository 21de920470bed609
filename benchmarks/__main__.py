"""The one command: `python -m benchmarks [group ...] [--quick] [--json FILE] [--without-kafka]`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks import machine, page_cache, report, runner
from benchmarks.figures import GROUPS
from benchmarks.job import FULL, QUICK, Job, Sizes
from benchmarks.peers import broker, jars
from benchmarks.runner import Result

#: Keeps what is measured so far.
Writer = Callable[[Sequence[report.Row], Mapping[str, Result]], None]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="group", help=", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument(
        "--without-kafka", action="store_true", help="no broker, no Delta, no Maven"
    )
    parser.add_argument("--gib", type=float, help="how much spark_memory reads (20 takes a while)")
    parser.add_argument("--fill-memory", action="store_true", help=page_cache.HELP)
    options = parser.parse_args(arguments)
    unknown = [group for group in options.groups if group not in GROUPS]
    if unknown:
        parser.error(f"unknown group {unknown[0]!r} (there are {', '.join(GROUPS)})")
    return options


def obstacle(options: argparse.Namespace) -> str | None:
    """What keeps this machine from running what was asked for, or None."""
    spark = any(GROUPS[name].spark for name in groups(options))
    if spark and (find_spec("pyspark") is None or shutil.which("java") is None):
        return "the spark groups need pyspark and Java 17; install them or name other groups"
    if options.without_kafka:
        return None
    reason = jars.obstacle()
    return reason and f"{reason}; install it or add --without-kafka"


def measure(options: argparse.Namespace, folder: Path, write: Writer) -> dict[str, Result]:
    """Run the groups one after another beside one broker; each prints its table when it is done."""
    names = groups(options)
    kafka = not options.without_kafka
    rows: list[report.Row] = []
    results: dict[str, Result] = {}
    with ExitStack() as stack:
        bootstrap = None
        if kafka:
            bootstrap = stack.enter_context(broker.running(jars.broker_jars(), folder / "kafka"))
        for name in names:
            group = GROUPS[name]
            extra = tuple(jars.spark_jars()) if group.spark and kafka else ()
            first = Job(
                case="", folder=str(folder), sizes=sizes(options), bootstrap=bootstrap, jars=extra
            )
            jobs = [replace(first, case=case) for case in group.kept(jars=kafka)]
            with page_cache.filled(str(folder)) if options.fill_memory else nullcontext():
                measured = runner.run(jobs, name)
            made = report.rows(name, group, measured)
            print(report.table(made), flush=True)
            results |= measured
            rows += made
            write(rows, results)
    return results


def sizes(options: argparse.Namespace) -> Sizes:
    """How much to measure."""
    chosen = QUICK if options.quick else FULL
    return chosen if options.gib is None else replace(chosen, gib=options.gib)


def groups(options: argparse.Namespace) -> list[str]:
    """What was asked for, or every group that doesn't take long."""
    return options.groups or [name for name, group in GROUPS.items() if not group.by_name]


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when a case failed, 2 when nothing could be tried."""
    options = parse(arguments)
    reason = obstacle(options)
    if reason:
        print(reason, file=sys.stderr)
        return 2
    jars.cache().mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=jars.cache()))
    about = machine.describe(folder) | {"sizes": asdict(sizes(options))}

    def write(rows: Sequence[report.Row], results: Mapping[str, Result]) -> None:
        if options.json:
            report.write_json(options.json, about, rows, results)

    results = measure(options, folder, write)
    failed = {case: result.error for case, result in results.items() if result.error}
    for case, error in failed.items():
        print(f"{case} failed: {error}")
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


def _end(*_: object) -> None:
    """Unwind on SIGTERM too, so that the broker and the measuring processes end with us."""
    sys.exit(143)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main(sys.argv[1:]))
