"""`kmq doctor`: can this machine run kmq, and can it run Spark?"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from kmq_spark.cli.command import Command
from kmq_spark.cli.diagnosis import Check
from kmq_spark.cli.disk_checks import check_folder, check_futex
from kmq_spark.cli.opening import store_url
from kmq_spark.cli.output import Output
from kmq_spark.cli.runtime_checks import (
    check_java,
    check_library,
    check_python,
    check_worker_python,
)
from kmq_storage.objects.local import LocalDisk
from kmq_storage.objects.open import open_files


def _doctor(arguments: Namespace, output: Output) -> int:
    checks = diagnose(store_url(arguments))
    broken = [check for check in checks if check.status == "fail"]
    output.fact({"ok": not broken, "checks": checks}, _report(checks))
    return 1 if broken else 0


def diagnose(store: str | None) -> list[Check]:
    """Return all checks, of the store's folder or else the current one."""
    files = open_files(store or ".")
    return [
        check_python(),
        check_library("pyarrow", (23, 0, 1), needed_by="kmq"),
        check_java(),
        check_library("pyspark", (4, 2, 0), needed_by="Spark"),
        check_worker_python(),
        # A store in memory has no folder to look at.
        *(check_folder(Path(files.url)) if isinstance(files, LocalDisk) else []),
        check_futex(),
    ]


def _report(checks: list[Check]) -> str:
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.status:<4}  {check.name:<{width}}  {check.found}")
        if check.advice:
            lines.append(f"{'':<4}  {'':<{width}}  -> {check.advice}")
    return "\n".join([*lines, _verdict(checks)])


def _verdict(checks: list[Check]) -> str:
    if any(check.status == "fail" for check in checks):
        return "kmq can't run here: fix what failed first."
    if any(check.status == "warn" for check in checks):
        return "Producers and consumers run here; see the advice above for the rest."
    return "All is well: producers, consumers and Spark run here."


COMMANDS = (Command("doctor", "check this machine: Python, Java, Spark and the disk", _doctor),)
