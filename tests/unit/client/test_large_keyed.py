"""Keyed queues where messages or names are more than one column of Arrow can have: 2 GiB.

Finds: what Arrow refuses in its own words, or what is refused though it fits in pieces; indexes of
a batch in pieces that begin anew with each.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.keyed import batches as keyed_batches
from kmq_spark.client.keyed import queues as keyed_queues
from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.errors import IllegalStateError, InvalidRequestError
from kmq_storage.format import gathered
from kmq_storage.keyed import index, parts
from kmq_storage.maintenance import counted


def test_more_bytes_of_names_than_a_column_can_have_are_refused_with_a_way_out(
    queues: KeyedQueues, monkeypatch: pytest.MonkeyPatch
):
    queues.put_batch(["long"] * 3, [b"", b"", b""])
    monkeypatch.setattr(gathered, "_COLUMN_BYTES", 11)
    with pytest.raises(InvalidRequestError, match="12 bytes of names are more"):
        queues.get_many(["long"], 0, 3)
    assert queues.get_many(["long"], 0, 2).num_rows == 2
    two = pa.chunked_array([[b"long"], [b"long"]])  # as Arrow gives back what is too much for one
    monkeypatch.setattr(keyed_batches, "column_of", lambda *_: two)
    with pytest.raises(InvalidRequestError, match="ask for fewer at a time"):
        queues.get_many(["long", "long"], 0, 1)


@pytest.mark.parametrize("sealed", [False, True])
def test_more_names_than_a_trim_can_keep_are_refused_and_hold_up_no_other_topic(
    queues: KeyedQueues, store: kmq.Store, monkeypatch: pytest.MonkeyPatch, sealed: bool
):
    queues.put_batch(["a" * 50, "b" * 50], [b"", b""])
    other = store.keyed_queues("other", retention=1e-6)
    other.put("c", b"").result()
    if sealed:
        store.seal()
    monkeypatch.setattr(counted, "_NAMES_BYTES", 100)
    told = "topic inbox: the queues with messages before offset 2 .* delete queues that are over"
    with pytest.raises(IllegalStateError, match=told):
        store.trim("inbox", {0: 2})
    store.alter_topic("inbox", retention=1e-6)
    with pytest.raises(IllegalStateError, match=told):
        store.maintain()
    assert [topic.rows for topic in store.topics()] == [2, 0]
    queues.delete("a" * 50, "b" * 50)
    monkeypatch.setattr(counted, "_NAMES_BYTES", 300)
    store.maintain()
    assert queues.put("a" * 50, b"").result() == 0


def test_more_names_than_a_column_can_have_are_listed_in_order_each_once(
    queues: KeyedQueues, store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(index, "_SORTED_BYTES", 4)
    queues.put_batch(["d", "abcdef", "c", "gone"], [b""] * 4)
    store.seal()
    queues.delete("gone")
    queues.put_batch(["ab", "c", b"\xff", "e"], [b""] * 4)
    assert queues._reader.names().num_chunks > 2
    assert queues.names() == ["ab", "abcdef", "c", "d", "e", b"\xff"]


def test_a_table_in_pieces_is_put_as_one_with_the_indexes_of_all(
    queues: KeyedQueues, monkeypatch: pytest.MonkeyPatch
):
    pieces = [
        pa.record_batch({"key": [b"a", b"b", b"a"], "value": [b"0", b"0", b"1"]}),
        pa.record_batch({"key": [b"b", b"a"], "value": [b"1", b"2"]}),
    ]
    # As those of a table of more than 2 GiB are, which Arrow doesn't put together.
    monkeypatch.setattr(keyed_queues, "checked_table", lambda _: pa.Table.from_batches(pieces))
    assert queues.put_batch([], []) == [0, 0, 1, 1, 2]
    assert queues.get("a", 0, 9) == [b"0", b"1", b"2"]


def test_a_get_of_any_size_has_its_messages_in_pieces_as_they_are_stored(queues: KeyedQueues):
    for value in (b"0", b"1"):
        queues.put("a", value).result()
    found = queues.get_arrow("a", 0, 9)["value"]
    assert found.num_chunks == 2  # else one of 2 GiB could not be given
    assert found.to_pylist() == [b"0", b"1"]


@pytest.mark.parametrize("looks", [False, True], ids=["sorted", "put together"])
def test_names_are_in_one_column_up_to_what_it_can_have(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, looks: bool
):
    monkeypatch.setattr(index, "_SCAN_ROWS", 1)
    monkeypatch.setattr(index, "_SORTED_BYTES", 500)
    monkeypatch.setattr(parts, "_NAMES_BYTES", 500)
    queues = store.keyed_queues("inbox")
    names = [f"{number:090}" for number in range(20)]
    for name in names:
        queues.put_batch([name], [b"x"])
        assert not looks or queues.size(name) == 1
    assert queues.names() == names
    columns = [part.table.names for part in queues._reader._index.loose]
    assert len(columns) > 2
    assert max(column.nbytes for column in columns) < 700
