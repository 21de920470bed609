"""Arrow schemas and tables out of nothing, for property tests: every type a topic can have."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_DAY = 86_400
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
#: Instants whose years Python has, in seconds.
_SECONDS = st.integers(-(2**33), 2**33)


def _ticks(unit: str, seconds: Any) -> Any:
    """Whole microseconds at most, as ticks of a unit."""
    factors = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
    step = 1000 if unit == "ns" else 1
    return st.builds(
        lambda second, rest: second * factors[unit] + rest * step,
        seconds,
        st.integers(0, factors[unit] // step - 1),
    )


def _decimal(kind: Any) -> Any:
    limit = 10**kind.precision - 1
    return st.integers(-limit, limit).map(
        lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -kind.scale))
    )


_INTS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_UINTS = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_TIMESTAMPS = [
    pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "+05:30")
]


def _values_of_scalars() -> dict[pa.DataType, Any]:
    found: dict[pa.DataType, Any] = {pa.null(): st.none(), pa.bool_(): st.booleans()}
    for kind in _INTS:
        found[kind] = st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    for kind in _UINTS:
        found[kind] = st.integers(0, 2**kind.bit_width - 1)
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        found[kind] = st.floats(width=kind.bit_width, allow_nan=False)
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        found[kind] = _TEXT
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        found[kind] = st.binary(max_size=20)
    found[pa.binary(3)] = st.binary(min_size=3, max_size=3)
    for kind in (pa.decimal128(9, 3), pa.decimal128(38, 0), pa.decimal256(60, 20)):
        found[kind] = _decimal(kind)
    found[pa.date32()] = st.dates()
    for unit in ("s", "ms"):
        found[pa.time32(unit)] = _ticks(unit, st.integers(0, _DAY - 1))
    for unit in ("us", "ns"):
        found[pa.time64(unit)] = _ticks(unit, st.integers(0, _DAY - 1))
    for unit in ("s", "ms", "us", "ns"):
        found[pa.duration(unit)] = _ticks(unit, _SECONDS)
    for kind in _TIMESTAMPS:
        found[kind] = _ticks(kind.unit, _SECONDS)
    for index in (pa.int8(), pa.uint16(), pa.int32()):
        for value in (pa.string(), pa.int64(), pa.binary()):
            found[pa.dictionary(index, value)] = found[value]
    return found


_SCALARS = _values_of_scalars()


def _nested(inside: Any) -> Any:
    items = st.builds(
        lambda kind, null: pa.field("item", kind, null or pa.types.is_null(kind)),
        inside,
        st.booleans(),
    )
    structs = st.lists(inside, min_size=1, max_size=3).map(
        lambda kinds: pa.struct([pa.field(f"f{n}", kind) for n, kind in enumerate(kinds)])
    )
    keys = st.sampled_from([pa.string(), pa.int32(), pa.dictionary(pa.int8(), pa.string())])
    return st.one_of(
        items.map(pa.list_),
        items.map(pa.large_list),
        st.builds(pa.list_, items, st.integers(1, 3)),
        structs,
        st.builds(pa.map_, keys, inside),
    )


TYPES = st.one_of(
    st.sampled_from(list(_SCALARS)),
    st.recursive(st.sampled_from(list(_SCALARS)), _nested, max_leaves=4),
)


def values(kind: Any, *, nullable: bool = True) -> Any:
    """Values of a type, in what `pyarrow.array` takes."""
    found = _present(kind)
    return st.one_of(st.none(), found) if nullable or pa.types.is_null(kind) else found


def _present(kind: Any) -> Any:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({part.name: values(part.type) for part in kind})
    if pa.types.is_map(kind):
        pairs = st.tuples(_present(kind.key_type), values(kind.item_type))
        return st.lists(pairs, max_size=3, unique_by=lambda pair: pair[0])
    fixed = pa.types.is_fixed_size_list(kind)
    low, high = (kind.list_size, kind.list_size) if fixed else (0, 3)
    item = values(kind.value_type, nullable=kind.value_field.nullable)
    return st.lists(item, min_size=low, max_size=high)


@st.composite
def tables(draw: Any, max_rows: int = 8) -> pa.Table:
    """A table of one to five columns, some of them not nullable."""
    kinds = draw(st.lists(TYPES, min_size=1, max_size=5))
    rows = draw(st.integers(0, max_rows))
    fields, arrays = [], []
    for number, kind in enumerate(kinds):
        nullable = pa.types.is_null(kind) or draw(st.booleans())
        some = draw(st.lists(values(kind, nullable=nullable), min_size=rows, max_size=rows))
        fields.append(pa.field(f"c{number}", kind, nullable))
        arrays.append(_array(some, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _array(some: list[Any], kind: Any) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(some, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(some, kind)
