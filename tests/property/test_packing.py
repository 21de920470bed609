"""The compiled way from values to columns and back is the way in Python, for whatever is sent.

Else records would depend on whether the machine of their producer had a compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.client import compiled
from kmq_spark.client.encoding import waiting_extras as waiting
from kmq_spark.client.encoding.routing import Rows
from kmq_spark.client.encoding.rows import rows_of_columns
from kmq_spark.client.records.stored_extras import StoredExtras, stored_extras
from kmq_spark.client.records.values import checked_extras
from kmq_spark.errors import InvalidRequestError
from kmq_spark.openmessaging.message import BytesMessage
from kmq_spark.openmessaging.stored import extras_of

#: Whether it must have been, `tests/unit/client/test_without_compiler.py` asks.
pytestmark = pytest.mark.skipif(not compiled.is_there, reason="nothing compiled it")

_INTS = st.integers(-(2**63), 2**63 - 1)
_PROPERTY = st.one_of(st.booleans(), _INTS, st.floats(allow_nan=False), st.text(), st.binary())
_HEADERS = st.none() | st.dictionaries(st.text(), st.none() | st.binary() | st.text(), max_size=4)
_PROPERTIES = st.none() | st.dictionaries(st.text(min_size=1), _PROPERTY, max_size=5)
_PARTITION = st.none() | st.integers(0, 3)
_EXTRAS = st.none() | st.tuples(_HEADERS, _PROPERTIES, _PARTITION)
_BYTES = st.none() | st.binary(max_size=40)
_ROWS = st.lists(st.tuples(_BYTES, _BYTES, _EXTRAS), min_size=1, max_size=12)

#: What is refused, or so large that it is left to Python.
_DECLINED: list[tuple[Any, Any]] = [
    ({"trace": 1}, None),
    ({1: b""}, None),
    ({"trace": "\ud800"}, None),
    ([("a", b""), ("a", b"")], None),
    (None, {"": 1}),
    (None, {"n": 2**63}),
    (None, {"n": None}),
    (None, {"\ud800": 1}),
    (None, [("n", 1)]),
    ({"large": b"x" * 5000}, None),
    (None, {"n" * 5000: 1}),
]


def _rows(rows: list[Any], extras: dict[int, Any]) -> Rows:
    values, keys = ([row[n] for row in rows] for n in (0, 1))
    return rows_of_columns(values, keys, np.arange(len(rows), dtype=np.int64), extras)


def _in_python(rows: list[Any]) -> Rows:
    """The same by the other way, which nothing packed is for."""
    given = ((n, row[2]) for n, row in enumerate(rows) if row[2] is not None)
    extras = {n: tuple(checked_extras(*each, None)) for n, each in given}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "is_there", False)
        return _rows(rows, extras)


def _chosen(rows: Rows) -> list[int]:
    count = rows.batch.num_rows
    return np.broadcast_to(-1 if rows.chosen is None else rows.chosen, count).tolist()


@given(rows=_ROWS)
def test_rows_become_the_same_columns(rows: list[Any]):
    packed = {n: waiting.waiting_extras(*row[2]) for n, row in enumerate(rows) if row[2]}
    assert {*map(type, packed.values())} <= {bytes}, "nothing of it is for the way in Python"
    made, expected = _rows(rows, packed), _in_python(rows)
    made.batch.validate(full=True)
    assert made.batch.schema == expected.batch.schema
    assert made.batch.equals(expected.batch)
    assert made.sizes.tolist() == expected.sizes.tolist()
    assert _chosen(made) == _chosen(expected)


@given(rows=_ROWS)
def test_packed_and_plain_rows_can_be_mixed(rows: list[Any]):
    extras: dict[int, Any] = {}
    for n, row in enumerate(rows):
        if row[2] is not None:
            extras[n] = waiting.waiting_extras(*row[2])
            if n % 2:
                extras[n] = waiting.unpacked(extras[n])
    assert _rows(rows, extras).batch.equals(_in_python(rows).batch)


@given(extras=st.tuples(_HEADERS, _PROPERTIES, _PARTITION))
def test_what_is_packed_is_unpacked_as_it_was_checked(extras: Any):
    packed = waiting.waiting_extras(*extras)
    assert waiting.unpacked(packed) == tuple(checked_extras(*extras, None))
    assert waiting.waiting_bytes(packed) == checked_extras(*extras, None).size


@given(rows=_ROWS, first=st.integers(0, 11))
def test_columns_become_the_same_values(rows: list[Any], first: int):
    batch = _in_python(rows).batch.slice(min(first, len(rows) - 1))
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    given = columns.get("headers"), columns.get("properties")
    found, plain = stored_extras(*given), StoredExtras(*given)
    assert type(found) is not type(plain)
    assert found.header_names() == plain.header_names()
    for row in range(batch.num_rows):
        assert found.headers(row) == plain.headers(row)
        assert found.properties(row) == plain.properties(row)
        assert _added(found, row) == _added(plain, row)


def _added(extras: Any, row: int) -> dict[str, Any]:
    found: dict[str, Any] = {"first": 1}
    extras.add_headers(found, row, {"a"}, _decoded, b"x0")
    return found


def _decoded(data: bytes) -> Any:
    """What begins with x or 0 is no text."""
    return data if data[:1] in (b"x", b"0", b"") else data.decode("utf-8", "replace")


@pytest.mark.parametrize(("headers", "properties"), _DECLINED)
def test_what_is_not_plain_is_left_to_the_way_in_python(headers: Any, properties: Any):
    assert waiting.packed_extras(headers, properties, None) is None
    try:
        expected = tuple(checked_extras(headers, properties, None, None))
    except InvalidRequestError:
        with pytest.raises(InvalidRequestError):
            waiting.waiting_extras(headers, properties)
    else:
        assert waiting.waiting_extras(headers, properties) == expected


@pytest.mark.parametrize("headers", [{}, {"h": 1}])
@pytest.mark.parametrize("properties", [{}, {"p": 1}])
def test_a_message_has_no_column_of_what_it_does_not_have(
    headers: dict[str, Any], properties: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    message = BytesMessage(b"", {"Topic": "t", **headers}, properties)
    packed = extras_of(message, 0)
    assert type(packed) is bytes
    monkeypatch.setattr(compiled, "is_there", False)
    plain = extras_of(message, 0)
    monkeypatch.undo()
    assert waiting.unpacked(packed) == plain
    columns = _rows([(b"", None)], {0: packed}).batch.schema.names
    assert ("headers" in columns, "properties" in columns) == (bool(headers), bool(properties))


def test_values_that_are_no_bytes_are_left_to_the_way_in_python():
    times = np.zeros(1, np.int64)
    assert waiting.packed_batch(["text"], [None], times, {}) is None
    assert waiting.packed_batch((b"tuple",), [None], times, {}) is None
    assert (
        waiting.packed_batch([b""], [None], times, {0: tuple(checked_extras({}, {}, 0, None))})
        is None
    )


def test_headers_that_change_while_they_are_packed_are_left_to_the_way_in_python():
    """It says that they did; else the record would be stored without some of them."""
    headers: dict[str, Any] = dict.fromkeys("abc", 1)

    def encode(_value: int) -> bytes:
        headers.pop("c", None)
        return b""

    assert waiting.packed_extras(headers, None, 0, left_out=(), encode=encode) is None


def test_rows_of_which_parts_are_missing_are_left_to_the_way_in_python():
    """A send that is interrupted, and once more while it takes its row back, leaves such ones."""
    one, two, times = [b""], [b"", b""], np.zeros(2, np.int64)
    extras = {0: waiting.waiting_extras({"h": b"v"}, None)}
    assert waiting.packed_batch(two, one, times, extras) is None
    assert waiting.packed_batch(one, [b"key"] * 2, times[:1], extras) is None
    assert waiting.packed_batch(two, two, times[:1], extras) is None
    with pytest.raises(ValueError, match="length"):
        rows_of_columns(one, [b"key"] * 2, times[:1], extras)


def test_no_memory_is_read_beside_a_column():
    given = _rows([(b"", None)], {0: waiting.waiting_extras({"h": b"v"}, {"p": 1})}).batch
    extras = stored_extras(given.column("headers"), given.column("properties"))
    for row in (1, -1, 2**40):
        for read in (extras.headers, extras.properties, lambda row: _added(extras, row)):
            with pytest.raises(IndexError):
                read(row)


def test_a_column_of_another_type_is_not_read_as_if_it_were_a_stored_one():
    entry = pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])
    large = pa.array([[("name", b"value")]], pa.list_(entry))
    with pytest.raises(TypeError, match="large_string"):
        stored_extras(large, None)
    few = pa.array([[("p", {"int": 1})]], pa.map_(pa.string(), pa.struct([("int", pa.int64())])))
    with pytest.raises(TypeError, match="map"):
        stored_extras(None, few)


def test_columns_live_as_long_as_somebody_has_one_of_them():
    """They share one piece of memory, which the last of them takes along."""
    rows = [(bytes([n]) * 100, b"key", ({"h": b"v"}, {"p": n}, 0)) for n in range(200)]
    packed = {n: waiting.waiting_extras(*row[2]) for n, row in enumerate(rows)}
    columns = [_rows(rows, packed).batch.column("properties") for _ in range(50)]
    kept = columns[7].slice(150)
    del columns
    assert [dict(each)["p"]["int"] for each in kept.to_pylist()] == list(range(150, 200))
