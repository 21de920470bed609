"""Rows as keyed JSON messages, and back."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.demo import messages

SCHEMA = pa.schema([("name", pa.string()), ("minutes", pa.int64())])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.none() | st.text(),
            "minutes": st.none() | st.integers(-(2**63), 2**63 - 1),
        }
    )
)


@given(ROWS)
def test_messages_are_json_and_come_back_as_the_same_rows(rows: list[dict[str, object]]):
    table = pa.Table.from_pylist(rows, SCHEMA)
    sent = messages.encode(table, key=table["name"])
    assert [json.loads(value) for value in sent["value"].to_pylist()] == rows
    assert messages.decode(sent["value"], SCHEMA).to_pylist() == rows


def test_the_key_is_the_text_as_utf8():
    table = pa.table({"name": ["Zürich", None], "minutes": [1, 2]}, SCHEMA)
    assert messages.encode(table, key=table["name"])["key"].to_pylist() == ["Zürich".encode(), None]


def test_a_field_that_nobody_asked_for_is_refused():
    values = pa.chunked_array([[b'{"name": "a", "minutes": 1, "seconds": 2}']])
    with pytest.raises(pa.ArrowInvalid, match="unexpected field"):
        messages.decode(values, SCHEMA)
