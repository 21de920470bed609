"""Decimals of another width or scale: stored as they are, or refused; Arrow's casts wrap around."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

import kmq_spark as kmq

CASTS = [
    (pa.decimal128(38, 0), Decimal(5 * 10**9), pa.decimal32(9, 0)),
    (pa.decimal256(76, 2), Decimal(10) ** 70, pa.decimal32(9, 2)),
    (pa.decimal64(11, 1), Decimal("4338984211.8"), pa.decimal32(9, 1)),
    (
        pa.decimal128(34, 4),
        Decimal("-41114955758050573769069700153.9116"),
        pa.decimal128(38, 11),
    ),
    (pa.decimal32(5, 0), Decimal(-3358), pa.decimal256(75, 75)),
]
INSIDE: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "alone": lambda kind: kind,
    "list": pa.list_,
    "pair": lambda kind: pa.list_(kind, 2),
    "struct": lambda kind: pa.struct([("f", pa.float64()), ("d", kind)]),
    "map": lambda kind: pa.map_(pa.string(), kind),
}


def _around(inside: str, value: Decimal) -> object:
    rows = {
        "list": [value],
        "pair": [value, None],
        "struct": {"f": float("nan"), "d": value},
        "map": [("k", value)],
    }
    return rows.get(inside, value)


def _send(store: kmq.Store, column: pa.Array, wanted: pa.DataType, inside: str) -> None:
    """To a topic whose column has the wanted type."""
    store.create_topic("t", schema=pa.schema([("price", INSIDE[inside](wanted))]))
    with store.producer() as producer:
        producer.send_arrow("t", pa.table({"price": column})).result(10)


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize(("given", "value", "wanted"), CASTS)
def test_a_decimal_that_does_not_fit_is_refused_by_its_column(
    store: kmq.Store, given: pa.DataType, value: Decimal, wanted: pa.DataType, inside: str
):
    refused = pytest.raises(kmq.InvalidRequestError, match=r"column 'price' .* is not")
    with refused:
        _send(
            store, pa.array([None, _around(inside, value)], INSIDE[inside](given)), wanted, inside
        )
    assert store.offsets("t") == {0: (0, 0)}


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize(("given", "value", "wanted"), CASTS)
def test_decimals_that_fit_are_stored_as_they_are(
    store: kmq.Store, given: pa.DataType, value: Decimal, wanted: pa.DataType, inside: str
):
    values = [None, _around(inside, Decimal(0)), None]
    _send(store, pa.array(values, INSIDE[inside](given)), wanted, inside)
    found = store.read("t", columns=["price"]).read_all()["price"]
    assert found.type == INSIDE[inside](wanted)
    assert repr(found[1].as_py()).count("Decimal") == 1
    assert found.null_count == 2
