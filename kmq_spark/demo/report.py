"""The demo's results: checks with their numbers, the carriers, and what to try next."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import pyarrow as pa

from kmq_spark.cli.output import aligned
from kmq_spark.demo import totals
from kmq_spark.demo.archive import Archive
from kmq_spark.demo.folder import Folder
from kmq_spark.demo.next_steps import near, next_steps

_TOP = 10


@dataclass(frozen=True, slots=True)
class Check:
    """A number that was found, and the number that it has to be."""

    claim: str
    found: int
    wanted: int | str
    ok: bool

    @property
    def numbers(self) -> str:
        """The number that was found and the wanted one, as text."""
        wanted = self.wanted if isinstance(self.wanted, str) else f"{self.wanted:,}"
        return f"{self.found:,} (wanted: {wanted})"


def equal(claim: str, found: int, wanted: int) -> Check:
    """The check that two numbers are equal."""
    return Check(claim, found, wanted, found == wanted)


def between(claim: str, found: int, low: int, high: int) -> Check:
    """The check that a number lies in a range, ends included."""
    return Check(claim, found, f"{low:,} to {high:,}", low <= found <= high)


@dataclass(frozen=True, slots=True)
class Report:
    """The end of a run."""

    engine: str
    seconds: float
    folder: Folder
    archive: Archive
    plot: str | None
    lag: int
    carriers: list[dict[str, Any]]
    checks: list[Check]

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)


def rank_carriers(delays: pa.Table, names: dict[str, str]) -> list[dict[str, Any]]:
    """The carriers by mean delay, the latest first."""
    table = totals.with_mean(totals.add_up(delays, ["carrier"]))
    rows = table.sort_by([("mean", "descending")]).to_pylist()
    return [
        {
            "carrier": names.get(row["carrier"], row["carrier"]),
            "flights": row["flights"],
            "cancelled": row["flights"] - row["departed"],
            "mean delay, min": None if row["mean"] is None else round(row["mean"], 1),
        }
        for row in rows
    ]


def count_differences(found: pa.Table, wanted: pa.Table) -> int:
    """Return how many rows are in only one of the two tables."""
    left, right = ({tuple(row.values()) for row in t.to_pylist()} for t in (found, wanted))
    return len(left ^ right)


def print_text(report: Report, target: TextIO) -> None:
    """Print the report for people."""
    print("\nMean departure delay, from the second topic:\n", file=target)
    print("\n".join("  " + line for line in aligned(report.carriers[:_TOP])), file=target)
    print("\nChecks:", file=target)
    for check in report.checks:
        verdict = "ok  " if check.ok else "FAIL"
        print(f"  {verdict}  {check.claim}: {check.numbers}", file=target)
    print(f"\nLag of group delays: {report.lag}", file=target)
    print(f"Archive ({report.archive.format}): {near(report.archive.path)}", file=target)
    plot = near(report.plot) if report.plot else "none, for want of matplotlib"
    print(f"Plot: {plot}", file=target)
    print(f"Done in {report.seconds:.0f} s, with {report.engine}.", file=target)
    if report.ok:
        print(next_steps(report.folder.store), file=target)


def print_json(report: Report, target: TextIO) -> None:
    """Print the report for programs, as one object."""
    found = asdict(report) | {"ok": report.ok, "store": report.folder.store}
    del found["folder"]
    print(json.dumps(found, indent=2), file=target)
