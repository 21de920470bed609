"""Sums of parts are the sum of the whole, and whoever is lost or counted twice shows."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.demo import totals
from kmq_spark.demo.report import count_differences

FLIGHT_SCHEMA = pa.schema(
    [("carrier", pa.string()), ("day", pa.string()), ("dep_delay", pa.int64())]
)
FLIGHTS = st.lists(
    st.tuples(
        st.sampled_from(["AA", "B6", "UA"]),
        st.sampled_from(["2013-01-01", "2013-01-02"]),
        st.none() | st.integers(-60, 2_000),
    ),
    min_size=1,
)


def _table(rows: list[tuple[str, str, int | None]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([list(column) for column in columns], schema=FLIGHT_SCHEMA)


@given(FLIGHTS, FLIGHTS)
def test_totals_of_two_batches_add_up_to_the_totals_of_both(first: list, second: list):
    parts = pa.concat_tables([totals.of_flights(_table(first)), totals.of_flights(_table(second))])
    assert totals.add_up(parts).equals(totals.of_flights(_table(first + second)))


@given(FLIGHTS)
def test_totals_are_what_a_loop_over_the_flights_finds(rows: list):
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for carrier, day, delay in rows:
        flights, departed, minutes = found.get((carrier, day), (0, 0, 0))
        left = delay is not None
        found[carrier, day] = (flights + 1, departed + left, minutes + (delay or 0))
    wanted = [(*key, *numbers) for key, numbers in sorted(found.items())]
    assert [tuple(row.values()) for row in totals.of_flights(_table(rows)).to_pylist()] == wanted


@given(FLIGHTS)
def test_a_flight_counted_twice_is_a_difference(rows: list):
    once, twice = totals.of_flights(_table(rows)), totals.of_flights(_table([*rows, rows[0]]))
    assert count_differences(once, once) == 0
    assert count_differences(twice, once) == 2


def test_a_carrier_that_never_departed_has_no_mean():
    table = totals.with_mean(totals.of_flights(_table([("AA", "2013-01-01", None)])))
    assert table["mean"].to_pylist() == [None]
