"""A list of a filter, looked up at once, against the same list compared value by value.

Finds: a list that differs from `=` with each of its values, for example for -0.0, for whole numbers
beyond what a float can say, or for an unknown result.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from kmq_storage.format.records import PROPERTIES_TYPE
from kmq_storage.queues import filters
from kmq_storage.queues.filters import accepted

_EDGES = (0, 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
_PLACES = {int: "int", float: "float", str: "text", bytes: "bytes", bool: "bool"}

_whole = st.sampled_from(_EDGES) | st.integers(-3, 3)
_broken = st.sampled_from((0.0, -0.0, 1.5, 2.0**53, 2.0**63, float("inf"), float("nan")))
_text = st.sampled_from(("", "a", "it's", "1", "true", "ä"))
_stored = st.none() | _whole | _broken | _text | st.booleans() | st.sampled_from((b"", b"a"))
_listed = (
    _whole.map(str)
    | st.sampled_from(("-0", "-0.0", "1.5", "9007199254740992.0", "1e999", "-1e999"))
    | st.sampled_from((2**63, -(2**63) - 1, 10**400)).map(str)
    | _text.map(lambda text: "'" + text.replace("'", "''") + "'")
    | st.sampled_from(("true", "false"))
)


def _properties(values: list[Any]) -> pa.Array:
    empty = dict.fromkeys(_PLACES.values())
    rows = [[] if each is None else [("a", empty | {_PLACES[type(each)]: each})] for each in values]
    return pa.array(rows, PROPERTIES_TYPE)


@example([0.0, -0.0, 0], ["0"])
@example([0.0, -0.0, 0], ["-0.0"])
@example([2**53, 2**53 + 1, 2.0**53], ["9007199254740992.0"])
@given(st.lists(_stored, max_size=12), st.lists(_listed, min_size=1, max_size=8))
def test_a_list_says_what_a_comparison_with_each_of_its_values_says(
    values: list[Any], listed: list[str]
):
    columns = filters._Columns(_properties(values))
    together = f"a in ({', '.join(listed)})"
    apart = " or ".join(f"a = {each}" for each in listed)
    one, other = (filters.parsed_filter(each)(columns).to_pylist() for each in (together, apart))
    assert one == other  # true, false, or None for unknown


def test_a_long_list_is_not_compared_value_by_value():
    listed = ", ".join(f"'{number}', {number}, {number}.5" for number in range(1000))
    properties = _properties(["7", "x", 7, -7, 7.5, 7.25, True, None])
    with patch.object(filters, "_compared", side_effect=filters._compared) as compared:
        entered = accepted(f"a in ({listed})", properties, len(properties)).to_pylist()
        others = accepted(f"a not in ({listed}, true)", properties, len(properties)).to_pylist()
    assert entered == [True, False, True, False, True, False, False, False]
    assert others == [False] * 8  # unknown for all but True, as none can be compared with all
    assert compared.call_count <= 2
