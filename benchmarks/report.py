"""The table and the JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.group import Figure, Group
from benchmarks.runner import Result

Results = Mapping[str, Result]


@dataclass(frozen=True)
class Row:
    """One figure as measured."""

    group: str
    figure: str
    kmq: float | None
    peer: float | None
    ratio: float | None
    target: float | None
    met: bool | None
    later: float | None
    later_met: bool | None
    unit: str


def rows(name: str, group: Group, results: Results) -> list[Row]:
    """The figures of a group, made of its results."""
    return [_row(name, figure, results) for figure in group.figures]


def _row(group: str, figure: Figure, results: Results) -> Row:
    ours, peer = _metric(group, figure.ours, results), _metric(group, figure.peer, results)
    ratio = ours / peer if ours is not None and peer else None
    return Row(
        group=group,
        figure=figure.text,
        kmq=ours,
        peer=peer,
        ratio=ratio,
        target=figure.target,
        met=_met(figure, ratio, figure.target),
        later=figure.later,
        later_met=_met(figure, ratio, figure.later),
        unit=_unit(figure),
    )


def _unit(figure: Figure) -> str:
    units = {"ms": "ms", "mb": "MiB", "times": "times", "requests": "requests"}
    return units.get(figure.ours.rpartition("_")[2], "/s")


def _metric(group: str, name: str | float, results: Results) -> float | None:
    if not isinstance(name, str):
        return name
    case, metric = case_of(group, name)
    result = results.get(case)
    return result.median(metric) if result else None


def case_of(group: str, name: str) -> tuple[str, str]:
    """The case and its metric that a figure of a group names."""
    function, metric = name.split(".")
    return function if ":" in function else f"{group}:{function}", metric


def _met(figure: Figure, ratio: float | None, target: float | None) -> bool | None:
    if ratio is None or target is None:
        return None
    return ratio <= target if figure.smaller_is_better else ratio >= target


def table(measured: Sequence[Row]) -> str:
    """The rows as a table of Markdown, which reads well in a terminal too."""
    head = ["figure", "kmq", "peer", "ratio", "target", "met", "later"]
    body = [_cells(row) for row in measured]
    widths = [max(len(line[at]) for line in [head, *body]) for at in range(len(head))]
    lines = [head, ["-" * width for width in widths], *body]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def _cells(row: Row) -> list[str]:
    return [
        f"{row.group}: {row.figure}",
        _number(row.kmq, row.unit),
        _number(row.peer, row.unit),
        "-" if row.ratio is None else f"{row.ratio:.2f}x",
        _bound(row.target, row.unit),
        {True: "met", False: "missed", None: "-"}[row.met],
        _bound(row.later, row.unit) + (" (met)" if row.later_met else ""),
    ]


def _bound(target: float | None, unit: str) -> str:
    if target is None:
        return "-"
    return f"{'>=' if unit == '/s' else '<='} {target:g}x"


def _number(number: float | None, unit: str) -> str:
    if number is None:
        return "-"
    if unit != "/s":
        return f"{number:.2f} {unit}" if number < 100 else f"{number:.0f} {unit}"
    return f"{number / 1e6:.2f} M/s" if number >= 1e6 else f"{number:,.0f} /s"


def write_json(
    path: Path, machine: Mapping[str, object], measured: Sequence[Row], results: Results
) -> None:
    """Everything: the machine, the rows, and every sample behind them, warm-up first."""
    document = {
        "machine": machine,
        "rows": [asdict(row) for row in measured],
        "cases": {case: asdict(result) for case, result in results.items()},
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
