"""Runs the scenarios on a real Kafka and on kmq: `python -m tests.spark.parity [--only NAME]`.

Prints each difference as a row for docs/kafka-parity.md, and whether that page has it. Fails when
there is one that the page doesn't have, or the page has one that is gone. Needs what
`python -m benchmarks` needs for its peers: Java, Maven (once), confluent-kafka.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.peers import broker, jars
from tests.spark.parity import batch, sinks, streams
from tests.spark.parity.asking import Asker, Finding, Scenario
from tests.spark.parity.sides import KafkaSide, KmqSide, Side
from tests.support.spark import start_session, stay_on_this_machine

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "kafka-parity.md"
#: The first cell of a row: facts with the same results and one reason.
_FACTS = re.compile(r"^\| (`[a-z_]+/[^|]+) \|", re.MULTILINE)

Differences = dict[str, tuple[Finding, Finding]]


def scenarios() -> dict[str, Scenario]:
    """Every scenario by its name."""
    return {
        name: function
        for module in (batch, streams, sinks)
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
    }


def listed_differences(page: str) -> set[str]:
    """The differences that the page names, as `scenario/fact`."""
    return {fact for cell in _FACTS.findall(page) for fact in re.findall(r"`([^`]+)`", cell)}


def differences(name: str, kafka: dict[str, Finding], own: dict[str, Finding]) -> Differences:
    """The facts of a scenario that are not the same."""
    missing = Finding("not found out")
    return {
        f"{name}/{fact}": (kafka.get(fact, missing), own.get(fact, missing))
        for fact in {**kafka, **own}
        if kafka.get(fact, missing) != own.get(fact, missing)
    }


def run(spark: SparkSession, sides: list[Side], folder: Path, chosen: list[str]) -> Differences:
    """Run scenarios on both sides, and print what is different."""
    found: Differences = {}
    for name in chosen:
        kafka, own = (_facts(spark, side, name, folder / side.name) for side in sides)
        different = differences(name, kafka, own)
        print(f"{name}: {len({**kafka, **own})} facts, {len(different)} differ", flush=True)
        for key, (theirs, ours) in different.items():
            print(f"| `{key}` | {theirs.what} | {ours.what} | |")
            print(f"    kafka said: {theirs.said}\n    kmq said: {ours.said}", flush=True)
        found |= different
    return found


def _facts(spark: SparkSession, side: Side, name: str, folder: Path) -> dict[str, Finding]:
    ask = Asker(spark, side, name, folder)
    try:
        scenarios()[name](ask)
    except Exception as error:
        traceback.print_exc()
        ask.found["the scenario itself"] = Finding(f"{type(error).__name__} on {side.name}")
    return ask.found


def judge(found: set[str], listed: set[str], ran: list[str]) -> list[str]:
    """What is wrong with the page, as far as the scenarios that ran can tell."""
    expected = {key for key in listed if key.partition("/")[0] in ran}
    return [
        *(f"not on the page: {key}" for key in sorted(found - expected)),
        *(f"on the page, but no difference: {key}" for key in sorted(expected - found)),
    ]


def main() -> int:
    """Run, and compare with the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(scenarios()), metavar="SCENARIO")
    chosen = parser.parse_args().only
    if obstacle := jars.obstacle():
        print(f"no Kafka: {obstacle}")
        return 2
    stay_on_this_machine()
    folder = Path(tempfile.mkdtemp(prefix="kmq-parity-"))
    try:
        with broker.running(jars.broker_jars(), folder / "broker") as bootstrap:
            spark = start_session(folder / "warehouse", [Path(jar) for jar in jars.spark_jars()])
            spark.sparkContext.setLogLevel(
                "OFF"
            )  # what is refused on purpose would fill the screen
            sides: list[Side] = [KafkaSide(bootstrap), KmqSide(str(folder / "store"))]
            found = run(spark, sides, folder, chosen)
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    wrong = judge(set(found), listed_differences(PAGE.read_text()), chosen)
    print(f"{len(found)} differences", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
