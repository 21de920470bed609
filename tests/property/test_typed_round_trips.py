"""Typed topics hand back what they were given: any schema, any values, by every way in and out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import kmq_spark as kmq
from kmq_spark.client.records.plain_values import plain_values
from kmq_storage.format.typed import stored_type
from kmq_storage.objects import memory
from tests.support.arrow_data import TYPES, tables


@contextmanager
def _store() -> Iterator[kmq.Store]:
    name = uuid.uuid4().hex
    with kmq.open(f"memory://{name}") as store:
        yield store
    memory._stores.pop(name, None)


def _own(store: kmq.Store, schema: pa.Schema) -> pa.Table:
    return store.read("t").read_all().select(schema.names)


def _same(one: pa.Table, other: pa.Table) -> bool:
    """Equal schemas and values; chunks and the order inside of dictionaries don't count."""
    return bool(one.schema == other.schema) and _plain(one) == _plain(other)


def _plain(table: pa.Table) -> list[list[Any]]:
    return [
        [value for chunk in column.chunks for value in plain_values(chunk)]
        for column in table.columns
    ]


@given(tables())
def test_arrow_data_comes_back_with_its_types_nulls_and_values(table: pa.Table):
    with _store() as store, store.producer(linger=0) as producer:
        assert store.create_topic("t", schema=table.schema).schema == table.schema
        sent = producer.send_arrow("t", table).result(10)
        assert sent.rows == table.num_rows
        found = _own(store, table.schema)
        assert _same(found, table)
        found.validate(full=True)
        store.seal()
        assert _same(_own(store, table.schema), table)


@given(tables(), st.data())
def test_batches_of_several_sends_come_back_joined_and_cut(table: pa.Table, data: st.DataObject):
    cuts = sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=3)))
    rows = data.draw(st.integers(1, 9))
    with _store() as store, store.producer(linger=0) as producer:
        store.create_topic("t", schema=table.schema)
        for start, end in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
            producer.send_arrow("t", table.slice(start, end - start)).result(10)
        reader = store.read("t", batch_rows=rows, columns=[*table.schema.names, "_offset"])
        found = reader.read_all()
        assert found.column("_offset").to_pylist() == list(range(table.num_rows))
        assert _same(found.select(table.schema.names), table)


@given(tables(), st.integers(2, 4))
def test_rows_of_several_partitions_keep_their_order_in_each(table: pa.Table, partitions: int):
    numbers = [number * 7 % partitions for number in range(table.num_rows)]
    with _store() as store, store.producer(linger=0) as producer:
        store.create_topic("t", schema=table.schema, partitions=partitions)
        whole = table.append_column("_partition", pa.array(numbers, pa.int64()))
        producer.send_arrow("t", whole).result(10)
        order = sorted(range(table.num_rows), key=lambda row: numbers[row])
        expected = [[column[row] for row in order] for column in _plain(table)]
        assert _plain(_own(store, table.schema)) == expected


@given(tables())
def test_dicts_come_back_as_records_and_as_arrow(table: pa.Table):
    columns = _plain(table)
    names = table.schema.names
    values = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    with _store() as store, store.producer(linger=0) as producer:
        store.create_topic("t", schema=table.schema)
        for value in values:
            producer.send("t", value)
        producer.flush()
        with store.consumer(topics=["t"]) as consumer:
            assert [record.value for record in consumer.consume(timeout=0.0)] == values
            consumer.seek_to_beginning()
            consumed = consumer.consume_arrow(timeout=0.0)
        assert _same(_own(store, table.schema), table)
        assert consumed is None or _same(consumed.select(names), table)


_ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(max_size=4),
        st.binary(max_size=4),
        st.decimals(allow_nan=True),
        st.dates(),
        st.times(),
        st.datetimes(),
        st.datetimes(timezones=st.just(UTC)),
        st.timedeltas(),
        st.just(object()),
    ),
    lambda inside: st.one_of(
        st.lists(inside, max_size=3),
        st.tuples(inside, inside),
        st.dictionaries(st.one_of(st.just("f0"), st.text(max_size=2)), inside, max_size=3),
    ),
    max_leaves=5,
)


@settings(max_examples=300)
@given(TYPES, _ANYTHING)
def test_any_value_comes_back_as_arrow_has_it_or_is_refused(kind: pa.DataType, value: Any):
    with _store() as store, store.producer(linger=0) as producer:
        store.create_topic("t", schema=pa.schema([("x", kind)]))
        refused = None
        try:
            producer.send("t", {"x": value})
        except kmq.InvalidRequestError as error:
            refused = error
        if refused is not None:
            assert refused.context["column"] == "x"
            assert store.log.refresh().lsn == 1
            return
        assert producer.flush(10) == 0
        (record,) = store.consumer(topics=["t"]).consume(timeout=0.0)
        as_arrow = pa.array([value], stored_type(kind))
        assert [record.value["x"]] == plain_values(as_arrow)


@settings(max_examples=50)
@given(tables(), st.data())
def test_any_subset_of_the_columns_is_that_of_all(table: pa.Table, data: st.DataObject):
    with _store() as store, store.producer(linger=0) as producer:
        store.create_topic("t", schema=table.schema)
        producer.send_arrow("t", table).result(10)
        whole = store.read("t").read_all()
        some = data.draw(st.lists(st.sampled_from(whole.schema.names), min_size=1, unique=True))
        assert _same(store.read("t", columns=some).read_all(), whole.select(some))
