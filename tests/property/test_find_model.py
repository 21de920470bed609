"""`Store.find` against a filter over `Store.read`, whatever was sent, sealed and compacted.

Finds: records missed or found too often, in another order, with another content, and bounds or
limits that are off by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kmq_spark as kmq
from kmq_storage.log.reading import search
from tests.support.engine import open_engine

PARTITIONS = 2
keys = st.sampled_from([b"", b"a", b"b"])
numbers = st.sampled_from([0, 1, 1.0, True, "1", b"1"])
properties = st.dictionaries(st.sampled_from(["p", "q"]), numbers, max_size=2)
header_values = st.sampled_from([None, b"", b"x"])
headers = st.lists(st.tuples(st.sampled_from(["h", "i"]), header_values), max_size=3)
partitions = st.integers(0, PARTITIONS - 1)
record = st.fixed_dictionaries(
    {
        "key": st.none() | keys,
        "headers": st.none() | headers,
        "properties": st.none() | properties,
        "partition": partitions,
        "value": st.none() | st.binary(max_size=4),
    }
)
steps = st.lists(
    st.lists(record, min_size=1, max_size=8) | st.sampled_from(["seal", "compact", "checkpoint"]),
    min_size=1,
    max_size=7,
)
bounds = st.none() | st.dictionaries(partitions, st.integers(0, 12))
looks = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | keys,
            "headers": st.dictionaries(st.sampled_from(["h", "i"]), header_values, max_size=1),
            "properties": properties,
            "start": bounds,
            "end": bounds,
            "limit": st.integers(1, 9),
        }
    ),
    min_size=1,
    max_size=6,
)


def _fill(store: kmq.Store, done: Sequence[Any], *, typed: bool, cleanup: str) -> None:
    schema = pa.schema([("text", pa.binary())]) if typed else None
    store.create_topic("t", partitions=PARTITIONS, schema=schema, cleanup=cleanup)
    with store.producer() as producer:
        for step in done:
            match step:
                case "seal":
                    store.seal()
                case "compact":
                    store.compact("t")
                case "checkpoint":
                    store.checkpoint()
                case _:
                    for each in step:
                        _send(producer, each, typed=typed)
                    producer.flush()


def _send(producer: kmq.Producer, sent: Mapping[str, Any], *, typed: bool) -> None:
    value = sent["value"]
    if typed and (value is not None or sent["key"] is None):
        value = {"text": value}
    producer.send("t", value, **{name: sent[name] for name in sent if name != "value"})


def _holds(row: Mapping[str, Any], prefix: str, look: Mapping[str, Any]) -> bool:
    """Whether a row of `read` is what is looked for, told value by value."""
    key, sent = row[f"{prefix}key"], row[f"{prefix}headers"] or []
    values = {
        name: next(value for value in members.values() if value is not None)
        for name, members in row[f"{prefix}properties"] or []
    }
    return (
        (look["key"] is None or key == look["key"])
        and all({"key": n, "value": v} in sent for n, v in look["headers"].items())
        and all(
            name in values and type(values[name]) is type(value) and values[name] == value
            for name, value in look["properties"].items()
        )
    )


@settings(max_examples=60)
@given(
    steps, looks, st.booleans(), st.sampled_from(["delete", "compact"]), st.sampled_from([0, 99])
)
def test_what_is_found_is_what_a_filter_leaves_of_all_that_is_read(
    done: Sequence[Any], asked: Sequence[Mapping[str, Any]], typed: bool, cleanup: str, large: int
):
    with open_engine() as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_LARGE", large)
        _fill(store, done, typed=typed, cleanup=cleanup)
        for look in asked:
            within = {
                number: min(offset, store.offsets("t")[number][1])
                for number, offset in (look["start"] or {}).items()
            }
            read = store.read("t", start=within, end=look["end"]).read_all()
            rows = [row for row in read.to_pylist() if _holds(row, "_" if typed else "", look)]
            table = store.find("t", **{**look, "start": within})
            assert table.schema == read.schema
            assert table.to_pylist() == rows[: look["limit"]]
