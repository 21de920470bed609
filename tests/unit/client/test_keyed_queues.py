"""Keyed queues: each queue has its messages from 0 on, whoever put them, wherever they stand.

Finds: indexes with gaps, of another queue or of another batch; messages that are not theirs; names
that are taken for others; what is put although it should be refused; a topic that loses what its
queues count.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.errors import ClosedError, CorruptionError, InvalidRequestError, NotFoundError
from kmq_storage.format import gathered
from kmq_storage.keyed import loose, many


def test_a_put_makes_its_queue_and_tells_the_index_of_its_message(queues: KeyedQueues):
    puts = [queues.put("a", b"1"), queues.put(b"b", "2"), queues.put("a", b"3")]
    assert [put.result() for put in puts] == [0, 0, 1]
    assert queues.get("a", 0, 10) == [b"1", b"3"]
    assert queues.get("b", 0, 10) == [b"2"]


def test_a_batch_tells_the_index_of_each_message(queues: KeyedQueues):
    assert queues.put_batch(["a", "b", b"a"], [b"1", b"2", "3"]) == [0, 0, 1]
    found = queues.put_batch(["b", "c", "b", "a"], [b"4", b"5", b"6", b"7"])
    assert list(found) == [1, 0, 2, 2]
    assert (len(found), found[2], found[1:], repr(found)) == (4, 2, [0, 2, 2], "[1, 0, 2, 2]")
    assert found != [1, 0, 2]
    assert found != "1022"


def test_the_indexes_of_a_batch_are_those_it_had_though_more_came_since(queues: KeyedQueues):
    first = queues.put_batch(["a", "b"], [b"1", b"2"])
    second = queues.put_batch(["b", "a"], [b"3", b"4"])
    queues.put("a", b"5").result()
    assert second == [1, 1]
    assert first == [0, 0]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.string_view()])
def test_messages_are_put_as_arrow(queues: KeyedQueues, kind: pa.DataType):
    names = pa.array(["a", "b", "a"], kind)
    batch = pa.record_batch({"queue": names, "value": pa.array(["1", "2", "3"], kind)})
    assert queues.put_arrow(batch) == [0, 0, 1]
    values = pa.chunked_array([["4"], ["5"]])
    table = pa.table({"value": values, "queue": ["b", "a"]})
    assert queues.put_arrow(table) == [1, 2]
    assert queues.get("a", 0, 9) == [b"1", b"3", b"5"]


def test_names_of_an_encoded_column_are_put(queues: KeyedQueues):
    names = pa.array(["a", "b", "a"]).dictionary_encode()
    assert queues.put_arrow(pa.table({"queue": names, "value": ["1", "2", "3"]})) == [0, 0, 1]


def test_a_get_begins_at_an_index_and_gives_what_there_is(queues: KeyedQueues):
    queues.put_batch(["a"] * 5 + ["b"], [b"%d" % n for n in range(6)])
    assert queues.get("a", 1, 3) == [b"1", b"2", b"3"]
    assert queues.get("a", 3, 10) == [b"3", b"4"]
    assert queues.get("a", 5, 10) == queues.get("a", 2**40, 1) == queues.get("a", 0, 0) == []
    assert queues.get("unknown", 0, 10) == []


def test_a_get_as_arrow_has_the_indexes_and_the_messages(queues: KeyedQueues):
    queues.put_batch(["a", "b", "a", "a"], [b"0", b"x", b"1", b"2"])
    found = queues.get_arrow("a", 1, 5)
    assert found.schema == pa.schema([("index", pa.int64()), ("value", pa.binary())])
    assert found.to_pydict() == {"index": [1, 2], "value": [b"1", b"2"]}
    assert queues.get_arrow("unknown", 0, 5).num_rows == 0


def test_many_queues_are_read_at_once_in_the_order_asked_for(queues: KeyedQueues):
    queues.put_batch(["a", "b", "a", "c"], [b"0", b"x", b"1", b"y"])
    found = queues.get_many(["c", b"a", "unknown", "a"], [0, 1, 0, 0], 2)
    assert found.schema.names == ["queue", "index", "value"]
    assert found.to_pydict() == {
        "queue": [b"c", b"a", b"a", b"a"],
        "index": [0, 1, 0, 1],
        "value": [b"y", b"1", b"0", b"1"],
    }
    assert queues.get_many(["a", "b"], 1, 9)["value"].to_pylist() == [b"1"]
    assert queues.get_many(["a"], 0, 2**80)["value"].to_pylist() == [b"0", b"1"]
    assert queues.get_many([], [], 9).num_rows == 0


def test_more_messages_than_a_column_can_have_are_refused_with_a_way_out(
    queues: KeyedQueues, monkeypatch: pytest.MonkeyPatch
):
    queues.put_batch(["a", "b"], [b"123", b"456"])
    monkeypatch.setattr(gathered, "_COLUMN_BYTES", 5)
    with pytest.raises(InvalidRequestError, match="6 bytes of messages are more"):
        queues.get_many(["a", "b"], 0, 1)
    assert queues.get_many(["a"], 0, 1).num_rows == 1


@pytest.mark.parametrize("held", [0, many._HELD_BYTES], ids=["copied at once", "where they stand"])
def test_many_queues_are_read_out_of_runs_and_what_is_in_none(
    store: kmq.Store, queues: KeyedQueues, monkeypatch: pytest.MonkeyPatch, held: int
):
    monkeypatch.setattr(many, "_HELD_BYTES", held)
    names = [f"queue {number % 300}" for number in range(3_000)]
    messages = [b"%d" % number * (number % 9) for number in range(3_000)]
    for first in range(0, 3_000, 1_000):
        queues.put_batch(names[first : first + 1_000], messages[first : first + 1_000])
        if first < 2_000:
            queues.flush()
            store.seal()
    asked = [f"queue {number}" for number in range(299, -1, -1)]
    found = queues.get_many(asked, 1, 8)["value"].to_pylist()
    assert found == [messages[int(name[6:]) + 300 * n] for name in asked for n in range(1, 9)]


def test_messages_that_the_disk_can_not_read_once_more_are_an_error(
    store: kmq.Store, queues: KeyedQueues, monkeypatch: pytest.MonkeyPatch
):
    queues.put_batch(["a", "b"], [b"message 1", b"message 2"])
    queues.flush()
    store.seal()
    monkeypatch.setattr(many, "is_readable", lambda _: False)
    with pytest.raises(CorruptionError, match="can't be read any more"):
        queues.get_many(["a", "b"], 0, 1)


def test_sizes_count_and_an_unknown_queue_has_none(queues: KeyedQueues):
    queues.put_batch(["a", "b", "a"], [b"", b"", b""])
    assert (queues.size("a"), queues.size(b"b"), queues.size("c")) == (2, 1, 0)


def test_names_are_in_the_order_of_their_bytes_and_text_where_they_can_be(queues: KeyedQueues):
    assert queues.names() == []
    queues.put_batch(["é", "z", "a/b", "Z", "a" * 65_535], [b""] * 5)
    assert queues.names() == ["Z", "a/b", "a" * 65_535, "z", "é"]
    queues.put(b"\xff\x00", b"").result()
    queues.put(b"\x00", b"").result()
    assert queues.names() == ["\x00", "Z", "a/b", "a" * 65_535, "z", "é", b"\xff\x00"]


def test_text_and_its_bytes_are_the_same_queue(queues: KeyedQueues):
    queues.put_batch(["ü", "ü".encode()], ["ä", b"\xff"])
    assert queues.get("ü", 0, 9) == queues.get("ü".encode(), 0, 9) == ["ä".encode(), b"\xff"]


@pytest.mark.parametrize(
    "name",
    ["", b"", "a" * 65_536, "ü" * 32_768, None, 7, "\ud800"],
    ids=["no text", "no bytes", "too long", "too many bytes", "None", "a number", "half a pair"],
)
def test_bad_names_are_refused_everywhere(queues: KeyedQueues, name: Any):
    calls = [
        lambda: queues.put(name, b"x"),
        lambda: queues.put_batch(["a", name], [b"x", b"y"]),
        lambda: queues.get(name, 0, 1),
        lambda: queues.get_arrow(name, 0, 1),
        lambda: queues.size(name),
    ]
    for call in calls:
        with pytest.raises(InvalidRequestError):
            call()
    assert queues.names() == []


@pytest.mark.parametrize("message", [None, 7, "\ud800", ["x"]])
def test_what_is_no_message_is_refused(queues: KeyedQueues, message: Any):
    with pytest.raises(InvalidRequestError):
        queues.put("a", message)
    with pytest.raises(InvalidRequestError):
        queues.put_batch(["a", "a"], [b"x", message])
    assert queues.size("a") == 0


@pytest.mark.parametrize(
    "batch",
    [
        {"queue": ["a"]},
        {"queue": ["a"], "value": [b"x"], "more": [1]},
        {"queue": ["a", None], "value": [b"x", b"y"]},
        {"queue": ["a", "b"], "value": [b"x", None]},
        {"queue": ["a", "b"], "value": pa.DictionaryArray.from_arrays([0, 1], [b"x", None])},
        {"queue": [1], "value": [b"x"]},
        {"queue": ["a"], "value": [1.5]},
    ],
)
def test_arrow_data_that_is_no_messages_is_refused(queues: KeyedQueues, batch: Any):
    with pytest.raises(InvalidRequestError):
        queues.put_arrow(pa.table(batch))
    assert queues.names() == []


def test_what_is_no_sequence_or_of_another_length_is_refused(queues: KeyedQueues):
    bad = [("ab", [b"x", b"y"]), (["a", "b"], b"xy"), (["a"], []), (7, [b"x"]), ({"a"}, {b"x"})]
    for names, messages in [*bad, ({"a": 1}, [b"x"])]:
        with pytest.raises(InvalidRequestError):
            queues.put_batch(names, messages)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError):
        queues.put_arrow([("a", b"x")])  # type: ignore[arg-type]


def test_nothing_is_put_by_an_empty_batch(queues: KeyedQueues):
    assert list(queues.put_batch([], [])) == []
    assert queues.names() == []


def test_a_message_that_is_too_large_is_refused_and_its_batch_with_it(queues: KeyedQueues):
    large = bytes(1_048_577)
    with pytest.raises(InvalidRequestError):
        queues.put("a", large).result()
    with pytest.raises(InvalidRequestError):
        queues.put_batch(["a", "a"], [b"x", large])
    assert queues.put("a", b"y").result() == 0


def test_flush_brings_what_was_put_to_disk(store: kmq.Store):
    queues = store.keyed_queues("inbox")
    queues.flush()
    puts = [queues.put("a", b"%d" % n) for n in range(100)]
    queues.flush()
    assert all(put.done() for put in puts)
    assert queues.get("a", 0, 1_000) == [b"%d" % n for n in range(100)]


def test_futures_of_puts_are_futures(queues: KeyedQueues):
    told: list[int] = []
    puts = [queues.put("a", b"x") for _ in range(3)]
    for put in puts:
        put.add_done_callback(lambda future: told.append(future.result()))
    assert sorted(put.result() for put in as_completed(puts)) == [0, 1, 2]
    queues.flush()
    assert sorted(told) == [0, 1, 2]
    assert puts[0].exception() is None


def test_it_is_the_same_topic_for_every_handle_and_its_records_are_the_messages(store: kmq.Store):
    queues = store.keyed_queues("inbox")
    assert store.keyed_queues("inbox").size("a") == 0
    queues.put_batch(["a", "b"], [b"1", b"2"])
    assert [topic.name for topic in store.topics()] == ["inbox"]
    with store.producer() as producer:
        producer.send("inbox", b"3", "a").result()
        producer.send("inbox", b"of no queue").result()
        producer.send("inbox", None, "b").result()
    assert store.read("inbox", columns=["key", "value"]).read_all().to_pydict() == {
        "key": [b"a", b"b", b"a", None, b"b"],
        "value": [b"1", b"2", b"3", b"of no queue", None],
    }
    assert queues.get("a", 0, 9) == [b"1", b"3"]
    assert queues.get("b", 0, 9) == []
    assert queues.names() == ["a"]


def test_what_other_handles_put_is_there_at_once(tmp_path: Path):
    with kmq.open(tmp_path / "store") as one, kmq.open(tmp_path / "store") as other:
        ours, theirs = one.keyed_queues("inbox"), other.keyed_queues("inbox")
        for number in range(50):
            assert [ours, theirs][number % 2].put("a", b"%d" % number).result() == number
            assert [theirs, ours][number % 2].size("a") == number + 1
        assert ours.get("a", 0, 99) == theirs.get("a", 0, 99) == [b"%d" % n for n in range(50)]


def test_many_threads_put_and_get_at_once(queues: KeyedQueues):
    def work(thread: int) -> list[tuple[str, int, bytes]]:
        told = []
        for number in range(60):
            queue, message = f"q{number % 7}", b"%d:%d" % (thread, number)
            index = queues.put(queue, message).result()
            told.append((queue, index, message))
            assert queues.get(queue, index, 1) == [message]
        return told

    with ThreadPoolExecutor(6) as pool:
        told = [each for found in pool.map(work, range(6)) for each in found]
    assert len({(queue, index) for queue, index, _ in told}) == len(told)
    for queue in queues.names():
        found = {index: message for name, index, message in told if name == queue}
        assert queues.get(queue, 0, 999) == [found[index] for index in range(len(found))]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_goes_on_with_the_queues_of_its_parent(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        queues.put("a", b"parent").result()
        child = os.fork()
        if child == 0:
            ended = queues.put("a", b"child").result() != 1
            os._exit(int(ended))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert queues.get("a", 0, 9) == [b"parent", b"child"]


def test_indexes_stay_when_records_are_sealed_and_their_files_collected(store: kmq.Store):
    queues = store.keyed_queues("inbox")
    expected: dict[str, list[bytes]] = {}
    for turn in range(4):
        names = [f"q{n % (turn + 2)}" for n in range(30)]
        messages = [b"%d.%d" % (turn, n) for n in range(30)]
        queues.put_batch(names, messages)
        for name, message in zip(names, messages, strict=True):
            expected.setdefault(name, []).append(message)
        [store.seal, store.checkpoint, store.maintain, lambda: store.compact("inbox")][turn]()
        store.collect(grace=0)
        for name, wanted in expected.items():
            assert queues.get(name, 0, 999) == wanted
            assert queues.get(name, len(wanted) // 2, 3) == wanted[len(wanted) // 2 :][:3]


def test_a_store_that_is_opened_again_has_its_queues(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.keyed_queues("inbox").put_batch(["a", "b", "a"], [b"1", b"2", b"3"])
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        assert (queues.names(), queues.get("a", 0, 9)) == (["a", "b"], [b"1", b"3"])
        assert queues.put("a", b"4").result() == 2


def test_large_messages_stand_between_small_ones(queues: KeyedQueues):
    messages = [bytes([n]) * size for n, size in enumerate([10, 1_000_000, 0, 1_000_000, 5])]
    assert queues.put_batch(["a"] * 5, messages) == [0, 1, 2, 3, 4]
    assert queues.get("a", 1, 3) == messages[1:4]


def test_messages_of_more_batches_than_stay_at_hand_are_read(
    queues: KeyedQueues, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loose, "_BATCHES_KEPT", 2)
    for number in range(6):
        queues.put_batch(["a", "b"], [b"%d" % number, b"x"])
    for _ in range(2):
        assert queues.get("a", 0, 9) == [b"%d" % n for n in range(6)]


def test_a_topic_of_records_has_no_queues(store: kmq.Store):
    store.create_topic("plain")
    with pytest.raises(InvalidRequestError, match="plain was made without keyed queues"):
        store.keyed_queues("plain")
    with pytest.raises(InvalidRequestError):
        store.keyed_queues("no/name")


def test_a_topic_of_queues_keeps_what_they_count(store: kmq.Store):
    queues = store.keyed_queues("inbox")
    queues.put("a", b"1").result()
    changes: list[dict[str, Any]] = [
        {"trims": True},
        {"cleanup": "compact"},
        {"keyed": False},
        {"schema": pa.schema([("n", pa.int64())])},
    ]
    for change in changes:
        with pytest.raises(InvalidRequestError):
            store.alter_topic("inbox", **change)
    with pytest.raises(InvalidRequestError, match="one partition"):
        store.add_partitions("inbox", 2)
    assert store.add_partitions("inbox", 1).partitions == 1
    assert store.alter_topic("inbox", compression="lz4").settings.keyed


def test_a_topic_that_is_made_again_has_new_queues(store: kmq.Store):
    queues = store.keyed_queues("inbox")
    queues.put_batch(["a", "b"], [b"1", b"2"])
    store.delete_topic("inbox")
    with pytest.raises(NotFoundError):
        queues.size("a")
    with pytest.raises(NotFoundError):
        queues.put("a", b"x").result()
    assert store.keyed_queues("inbox").names() == []
    assert (queues.names(), queues.put("a", b"3").result()) == ([], 0)


def test_a_closed_store_refuses_puts_and_gets(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        queues.put("a", b"1")
    for call in (lambda: queues.put("a", b"2"), lambda: queues.get("a", 0, 1)):
        with pytest.raises(ClosedError):
            call()


def test_who_only_reads_has_no_producer(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.keyed_queues("inbox").put("a", b"1").result()
    with kmq.open(tmp_path / "store", read_only=True) as store:
        queues = store.keyed_queues("inbox")
        assert queues.get("a", 0, 9) == [b"1"]
        queues.flush()
