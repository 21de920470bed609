"""Schemas that change: what is allowed, what is refused, and old records under the new schema."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.format.typed import VERSIONS_MAX
from tests.unit.client.stored import lsn, values

FIRST = pa.schema(
    [
        pa.field("id", pa.int16(), nullable=False),
        ("x", pa.float32()),
        ("tags", pa.list_(pa.int8())),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
    ]
)
ID, X, TAGS, KIND = FIRST
RENAMED = pa.list_(pa.field("other", TAGS.type.value_type))


@pytest.fixture
def typed(store: kmq.Store) -> kmq.Store:
    """A store with a typed topic `t` that has a record."""
    store.create_topic("t", schema=FIRST)
    _send(store, {"id": 1, "x": 0.5, "tags": [1], "kind": "k"})
    return store


def _send(store: kmq.Store, value: dict[str, Any]) -> None:
    with store.producer() as producer:
        producer.send("t", value).result(10)


def test_old_records_read_under_the_newest_schema(typed: kmq.Store):
    wider = [pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.float64())]
    second = pa.schema([pa.field("new", pa.string()), *wider, TAGS, KIND])
    info = typed.alter_topic("t", schema=second)
    assert info.schema == second
    _send(typed, {"id": 2**40, "x": 0.1, "new": "n"})
    third = second.append(pa.field("last", pa.bool_()))
    typed.alter_topic("t", schema=third)
    _send(typed, {"id": 3, "last": True})
    expected = [
        {"new": None, "id": 1, "x": 0.5, "tags": [1], "kind": "k", "last": None},
        {"new": "n", "id": 2**40, "x": 0.1, "tags": None, "kind": None, "last": None},
        {"new": None, "id": 3, "x": None, "tags": None, "kind": None, "last": True},
    ]
    assert values(typed, "t") == expected
    table = typed.read("t").read_all().select(third.names)
    assert table.schema == third
    assert table.to_pylist() == expected
    some = typed.read("t", columns=["last", "id"]).read_all()
    assert some.to_pylist() == [{"last": row["last"], "id": row["id"]} for row in expected]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int8(), pa.int16()),
        (pa.int32(), pa.int64()),
        (pa.uint8(), pa.uint64()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.float32(), pa.float64()),
    ],
)
def test_every_extreme_survives_a_widening(store: kmq.Store, old: pa.DataType, new: pa.DataType):
    low, high = (-65504, 65504) if pa.types.is_floating(old) else _range(old)
    store.create_topic("t", schema=pa.schema([("n", old)]))
    for number in (low, high):
        _send(store, {"n": number})
    store.alter_topic("t", schema=pa.schema([("n", new)]))
    assert values(store, "t") == [
        {"n": low},
        {"n": high},
    ]
    assert store.read("t").schema.field("n").type == new


def _range(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_signed_integer(kind):
        return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    return 0, 2**kind.bit_width - 1


@pytest.mark.parametrize(
    ("fields", "column", "reason"),
    [
        ([ID, X, TAGS], "kind", "is missing; columns can't be dropped or renamed"),
        ([ID, X, TAGS, pa.field("sort", KIND.type)], "kind", "is missing"),
        ([X, ID, TAGS, KIND], "x", "moved; columns keep their order"),
        ([*FIRST, pa.field("n", pa.int8(), nullable=False)], "n", "is new and not nullable"),
        ([ID.with_nullable(True), X, TAGS, KIND], "id", "can't become nullable"),
        ([ID, X.with_nullable(False), TAGS, KIND], "x", "can't become not nullable"),
        ([ID.with_type(pa.int8()), X, TAGS, KIND], "id", "from int16 to int8"),
        ([ID.with_type(pa.uint32()), X, TAGS, KIND], "id", "from int16 to uint32"),
        ([ID.with_type(pa.float64()), X, TAGS, KIND], "id", "from int16 to double"),
        ([ID.with_type(pa.string()), X, TAGS, KIND], "id", "from int16 to string"),
        ([ID, X.with_type(pa.float16()), TAGS, KIND], "x", "from float to halffloat"),
        ([ID, X, TAGS.with_type(pa.list_(pa.int16())), KIND], "tags", "from list"),
        ([ID, X, TAGS.with_type(RENAMED), KIND], "tags", "from list<item: .* to list<other: "),
        ([ID, X, TAGS, KIND.with_type(pa.string())], "kind", "from dictionary"),
        ([*FIRST, pa.field("_n", pa.int8())], "_n", "begins with '_'"),
    ],
)
def test_any_other_change_is_refused_with_its_reason(
    typed: kmq.Store, fields: list[pa.Field], column: str, reason: str
):
    before = lsn(typed)
    with pytest.raises(kmq.InvalidRequestError, match=reason) as refused:
        typed.alter_topic("t", schema=pa.schema(fields))
    assert refused.value.context["column"] == column
    assert lsn(typed) == before
    assert typed.describe_topic("t").schema == FIRST


def test_an_untyped_topic_stays_untyped_and_a_typed_one_typed(typed: kmq.Store):
    typed.create_topic("plain")
    with pytest.raises(kmq.InvalidRequestError, match="plain is untyped and stays so"):
        typed.alter_topic("plain", schema=FIRST)
    with pytest.raises(kmq.InvalidRequestError, match=r"must be a pyarrow\.Schema"):
        typed.alter_topic("t", schema=None)
    with pytest.raises(kmq.InvalidRequestError, match="'schemas' is unknown"):
        typed.alter_topic("t", schemas=())


def test_other_changes_keep_the_schema_and_the_same_schema_changes_nothing(typed: kmq.Store):
    typed.alter_topic("t", capacity=5)
    typed.add_partitions("t", 3)
    assert typed.alter_topic("t", schema=FIRST).schema == FIRST
    assert len(typed.describe_topic("t").settings.schemas) == 1


def test_a_map_whose_parts_have_other_names_is_the_same_map(store: kmq.Store):
    parts = pa.field("keys", pa.string(), nullable=False), pa.field("values", pa.int8())
    schema = pa.schema([("m", pa.map_(*parts))])  # as arrow-rs calls them
    store.create_topic("t", schema=schema)
    assert len(store.alter_topic("t", schema=schema).settings.schemas) == 1
    store.alter_topic("t", schema=schema.append(pa.field("new", pa.int8())))
    _send(store, {"m": {"a": 1}, "new": 2})
    assert values(store, "t") == [{"m": [("a", 1)], "new": 2}]


def test_a_producer_that_was_open_before_sends_the_new_columns(typed: kmq.Store):
    with typed.producer() as producer:
        producer.send("t", {"id": 1}).result(10)
        with kmq.open(typed.url) as other:
            other.alter_topic("t", schema=FIRST.append(pa.field("new", pa.int8())))
        producer.send("t", {"id": 2, "new": 5}).result(10)
        producer.send_arrow("t", pa.table({"id": [3], "new": [6]})).result(10)
    assert [each["new"] for each in values(typed, "t")] == [None, None, 5, 6]


def test_a_list_that_can_be_read_only_once_is_not_stored_empty_after_a_change(typed: kmq.Store):
    with kmq.open(typed.url) as other, typed.producer() as producer:
        other.alter_topic("t", schema=FIRST.set(0, ID.with_type(pa.int32())))
        with pytest.raises(kmq.InvalidRequestError, match="only once: make a list"):
            producer.send("t", {"id": 1 << 20, "tags": iter([1])})  # is checked twice


def test_what_waits_while_the_schema_changes_is_stored_under_the_new_one(typed: kmq.Store):
    with typed.producer(linger=30) as producer:
        waits = producer.send("t", {"id": 2})
        typed.alter_topic("t", schema=FIRST.append(pa.field("new", pa.int8())))
        waits.result(10)
    assert [each["new"] for each in values(typed, "t")] == [None, None]


def test_a_consumer_that_reads_across_a_change_gets_one_schema(typed: kmq.Store):
    typed.add_partitions("t", 2)
    with typed.consumer(topics=["t"]) as consumer, typed.producer() as producer:
        producer.send("t", {"id": 2}, partition=1).result(10)
        first = consumer.consume_arrow(max_rows=1, timeout=0)
        assert first is not None
        assert "new" not in first.schema.names
        typed.alter_topic("t", schema=FIRST.append(pa.field("new", pa.int8())))
        producer.send("t", {"id": 3, "new": 1}, partition=0).result(10)
        rest = consumer.consume_arrow(timeout=0)
        assert rest is not None
        assert sorted(zip(rest["id"].to_pylist(), rest["new"].to_pylist(), strict=True)) == [
            (2, None),
            (3, 1),
        ]


def test_changes_at_the_same_moment_are_all_there_or_refused(typed: kmq.Store):
    names = [f"n{number}" for number in range(4)]
    refused: list[str] = []

    def add(name: str) -> None:
        with kmq.open(typed.url) as other:
            schema = other.describe_topic("t").schema
            try:
                other.alter_topic("t", schema=schema.append(pa.field(name, pa.int8())))
            except kmq.InvalidRequestError:  # another column came first, and ours lacks it
                refused.append(name)

    threads = [threading.Thread(target=add, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    there = typed.describe_topic("t").schema.names[len(FIRST) :]
    assert sorted(there + refused) == names
    assert there


def test_a_schema_has_a_bounded_number_of_versions(store: kmq.Store):
    info = store.create_topic("t", schema=FIRST)
    limit = (*info.settings.schemas,) * VERSIONS_MAX
    from kmq_storage.model import TopicSettings
    from kmq_storage.topics import checked_settings

    full = TopicSettings(schemas=limit)
    with pytest.raises(kmq.InvalidRequestError, match=f"has changed {VERSIONS_MAX} times"):
        checked_settings(full, {"schema": FIRST.append(pa.field("n", pa.int8()))}, topic="t")


@pytest.mark.parametrize(
    ("old", "new", "column"),
    [
        ({"a": pa.int64(), "b": pa.string()}, {"a": pa.int64()}, pa.array([1])),
        ({"a": pa.int64()}, {"a": pa.int32()}, pa.array([1], pa.int32())),
        (None, {"value": pa.string()}, pa.array(["v"])),
        ({"a": pa.int64()}, None, pa.array(["v"])),
    ],
    ids=["fewer columns", "a narrower one", "typed now", "untyped now"],
)
def test_arrow_data_for_a_topic_that_others_made_anew_is_taken_as_it_was_sent(
    tmp_path: Path,
    old: dict[str, pa.DataType] | None,
    new: dict[str, pa.DataType] | None,
    column: pa.Array,
):
    """What the topic of before would have had added or cast is none of the new one's business."""
    with kmq.open(tmp_path) as here, kmq.open(tmp_path) as there, here.producer() as producer:
        here.create_topic("t", schema=old and pa.schema(old))
        there.delete_topic("t")
        there.create_topic("t", schema=new and pa.schema(new))
        (name,) = new or {"value": None}
        assert producer.send_arrow("t", pa.table({name: column})).result(10).rows == 1


def test_a_record_of_nothing_is_taken_by_a_topic_that_others_made_anew_untyped(tmp_path: Path):
    with kmq.open(tmp_path) as here, kmq.open(tmp_path) as there, here.producer() as producer:
        here.create_topic("t", schema=FIRST)
        producer.send("t", None, key="k").result(10)
        there.delete_topic("t")
        there.create_topic("t")
        assert producer.send("t", None).result(10).offset == 0
