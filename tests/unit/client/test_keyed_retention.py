"""Retention of keyed topics: old messages go, and what stays keeps its index.

Finds: indexes that move or are given twice, messages that come back, a get that answers with others
than those asked for, and settings that are taken and do nothing.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.errors import FormatVersionError, OffsetOutOfRangeError
from kmq_storage import limits
from kmq_storage.copying.topics import copy_topics
from kmq_storage.format.queue_table import Beginnings
from kmq_storage.log.reading.run_index import RunIndex
from kmq_storage.log.state.topic_settings import settings_of
from kmq_storage.maintenance import counted, queue_starts
from tests.support.engine import open_engine

#: Where the messages stand that are given up.
WHERE = ("behind the runs", "in runs", "in one run")


def _put(store: kmq.Store, where: str) -> None:
    """Messages 0 to 3 of `a`, 0 and 1 of `b`, in seven commits' order a, b, a, a, c, b, a."""
    queues = store.keyed_queues("inbox")
    for batch in ("aba", "acba"):
        queues.put_batch(list(batch), [b"x"] * len(batch))
        if where != "behind the runs":
            store.seal()
    if where == "in one run":
        store.compact("inbox")


SPANS = {
    1: {"a": (1, 4), "b": (0, 2), "c": (0, 1)},
    3: {"a": (2, 4), "b": (1, 2), "c": (0, 1)},
    5: {"a": (3, 4), "b": (1, 2), "c": (1, 1)},
    7: {"a": (4, 4), "b": (2, 2), "c": (1, 1)},
}


@pytest.mark.parametrize("start", SPANS)
@pytest.mark.parametrize("where", WHERE)
def test_what_is_kept_of_a_queue_keeps_its_indexes(store: kmq.Store, where: str, start: int):
    _put(store, where)
    report = store.trim("inbox", {0: start})
    assert (report.rows, store.topics()[0].rows) == (start, 7 - start)
    queues = store.keyed_queues("inbox")
    for settle in (store.topics, store.seal, lambda: store.compact("inbox"), store.checkpoint):
        settle()
        assert {name: queues.span(name) for name in "abc"} == SPANS[start]
        assert queues.names() == [name for name in "abc" if queues.size(name)]
        for name, (first, end) in SPANS[start].items():
            assert queues.get(name, first, 9) == [b"x"] * (end - first)
    assert [queues.put(name, b"y").result() for name in "abcd"] == [4, 2, 1, 0]


def test_records_of_no_queue_are_given_up_though_no_message_is(
    store: kmq.Store, queues: KeyedQueues
):
    with store.producer() as producer:
        producer.send("inbox", b"of no queue")
    queues.put("a", b"x").result()
    assert store.trim("inbox", {0: 1}).rows == 1
    assert (queues.span("a"), queues.get("a", 0, 9)) == ((0, 1), [b"x"])
    assert store.verify(deep=True).ok


def test_a_get_below_what_is_kept_names_the_queue_and_the_range(
    store: kmq.Store, queues: KeyedQueues
):
    queues.put_batch(["a", "b", "a", "a"], [b"0", b"1", b"2", b"3"])
    store.trim("inbox", {0: 3})
    message = r"message 1 of queue b'a' in inbox is not kept any more, the queue has 2 to 3 \(next"
    with pytest.raises(OffsetOutOfRangeError, match=message) as error:
        queues.get("a", 1, 9)
    context = error.value.context
    assert [context[name] for name in ("queue", "offset", "start", "end")] == [b"a", 1, 2, 3]
    with pytest.raises(OffsetOutOfRangeError, match="message 0 of queue b'b'"):
        queues.get_many(["a", "c", "b"], [2, 0, 0], 9)
    assert queues.get_many(["a", "b", "c"], None, 9).to_pydict() == {
        "queue": [b"a"],
        "index": [2],
        "value": [b"3"],
    }
    assert queues.get("b", 1, 9) == []


def test_retention_by_time_gives_up_what_is_older(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox", retention=timedelta(microseconds=1))
        queues.put_batch(["a", "b"], [b"0", b"1"])
        store.maintain()
        assert (queues.names(), queues.span("a")) == ([], (1, 1))
        assert queues.put("a", b"2").result() == 1
        assert queues.get("a", 1, 9) == [b"2"]


def test_retention_by_bytes_keeps_the_newest(store: kmq.Store):
    queues = store.keyed_queues("inbox", retention_bytes=250)
    for number in range(9):
        queues.put_batch(["a", "b"], [b"%099d" % number] * 2)
        store.seal()
    store.maintain()
    assert (queues.span("a"), queues.span("b")) == ((7, 9), (7, 9))
    assert queues.get("b", 7, 9) == [b"%099d" % 7, b"%099d" % 8]


def test_what_is_given_up_once_is_not_given_up_again(store: kmq.Store):
    queues = store.keyed_queues("inbox", retention=timedelta(microseconds=1))
    queues.put("a", b"x").result()
    assert store.maintain().trimmed.rows == 1
    commits = len(list(store.commits()))
    store.maintain()
    assert len(list(store.commits())) == commits


def test_queues_that_are_there_with_another_retention_are_warned_of(store: kmq.Store):
    store.keyed_queues("inbox", retention=60.0)
    with pytest.warns(kmq.KmqWarning, match=r"retention=60\.0 \(asked: 30\.0\)") as told:
        store.keyed_queues("inbox", retention=30.0)
    assert told[0].filename == __file__, "it names the line that asked"
    store.keyed_queues("inbox")
    store.keyed_queues("inbox", retention=60)
    altered = store.alter_topic("inbox", retention=None, retention_bytes=10)
    assert (altered.settings.retention, altered.settings.retention_bytes) == (None, 10)


def test_earlier_versions_refuse_a_topic_whose_queues_may_begin_behind_0(
    store: kmq.Store, queues: KeyedQueues
):
    queues.put("a", b"x").result()
    assert "trims" not in store.topics()[0].settings.to_json()
    store.trim("inbox", {0: 1})
    members = store.topics()[0].settings.to_json()
    assert members["trims"]
    with pytest.raises(FormatVersionError):
        settings_of("inbox", {**members, "some later setting": True})


def test_indexes_that_are_asked_for_after_a_trim_are_not_invented(
    store: kmq.Store, queues: KeyedQueues
):
    put, batch = queues.put("a", b"1"), queues.put_batch(["a", "b"], [b"2", b"3"])
    later = queues.put("a", b"4")
    later.result()
    store.trim("inbox", {0: 3})
    for look in (put.result, lambda: list(batch)):
        with pytest.raises(OffsetOutOfRangeError, match="trimmed since") as told:
            look()
        assert not told.value.retryable, "who puts again doubles what is stored"
    assert later.result() == 2


def test_indexes_of_the_messages_of_a_batch_that_a_trim_left_are_told(
    store: kmq.Store, queues: KeyedQueues
):
    batch = queues.put_batch(["a", "b", "a"], [b"1", b"2", b"3"])
    store.trim("inbox", {0: 1})
    assert batch[1:] == [0, 1]
    with pytest.raises(OffsetOutOfRangeError, match="trimmed since"):
        batch[0]


def test_the_last_message_that_a_trim_took_is_told_as_trimmed(
    store: kmq.Store, queues: KeyedQueues
):
    puts = [queues.put("a", b"%d" % n) for n in range(6)]
    queues.flush()
    store.trim("inbox", {0: 3})
    with pytest.raises(OffsetOutOfRangeError, match="trimmed since") as told:
        puts[2].result()
    assert (told.value.context["start"], told.value.context["end"]) == (3, 6)
    assert [put.result() for put in puts[3:]] == [3, 4, 5]


@pytest.mark.parametrize("where", WHERE)
def test_a_queue_that_ended_begins_at_0_whatever_was_trimmed(store: kmq.Store, where: str):
    _put(store, where)
    queues = store.keyed_queues("inbox")
    queues.delete("a")
    queues.put("a", b"new").result()
    store.trim("inbox", {0: 5})
    for settle in (store.topics, store.seal, lambda: store.compact("inbox")):
        settle()
        assert (queues.span("a"), queues.get("a", 0, 9)) == ((0, 1), [b"new"])
        assert (queues.span("b"), queues.span("c")) == ((1, 2), (1, 1))
    store.trim("inbox", {0: 9})
    assert (queues.span("a"), queues.span("b")) == ((1, 1), (2, 2))
    queues.delete("b")
    assert queues.put_batch(["a", "b"], [b"x", b"y"]) == [1, 0]


def test_nothing_is_left_of_a_queue_that_ended_before_what_is_kept(
    store: kmq.Store, queues: KeyedQueues, monkeypatch: pytest.MonkeyPatch
):
    told: list[Beginnings] = []
    real = counted.next_indexes
    monkeypatch.setattr(
        queue_starts, "next_indexes", lambda *given: told.append(real(*given)) or told[-1]
    )
    queues.put_batch(["a", "b"], [b"1", b"2"])
    queues.delete("a")
    store.trim("inbox", {0: 3})
    assert told[0].names.to_pylist() == [b"b"]


def test_receivers_go_on_with_what_is_kept(store: kmq.Store, queues: KeyedQueues):
    queues.put_batch(["a"] * 6, [b"%d" % n for n in range(6)])
    held = queues.receive("a", 2)
    store.trim("inbox", {0: 4})
    assert queues.lag("a") == 2
    assert queues.lag("a", group="new") == 2
    queues.ack(held)
    found = queues.receive("a", 9)
    assert [(each.index, each.value) for each in found] == [(4, b"4"), (5, b"5")]
    queues.ack(found)
    assert (queues.lag("a"), queues.receive("a")) == (0, [])
    queues.put("a", b"6").result()
    assert [each.index for each in queues.receive("a")] == [6]


def test_consumers_go_on_where_the_log_begins(store: kmq.Store, queues: KeyedQueues):
    queues.put_batch(["a"] * 6, [b"%d" % n for n in range(6)])
    with store.consumer(topics=["inbox"]) as consumer:
        consumer.seek("inbox", 0, 1)
        store.trim("inbox", {0: 4})
        assert [record.value for record in consumer.consume(9)] == [b"4", b"5"]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("restored", [False, True], ids=["followed", "from a checkpoint"])
def test_who_stands_at_the_last_message_given_up_is_told(
    store: kmq.Store, tmp_path: Path, where: str, restored: bool
):
    _put(store, where)
    store.set_group_offsets("late", {"inbox": {0: 3}})
    assert store.trim("inbox", {0: 4}).starts == {"inbox": {0: 4}}
    assert not store.trim("inbox", {0: 4}).starts, "it begins there"
    if restored:
        store.checkpoint()
    with kmq.open(store.url) if restored else nullcontext(store) as other:
        assert other.topics()[0].offsets == {0: (4, 7)}
        with (
            other.consumer("late", topics=["inbox"], auto_offset_reset="none") as consumer,
            pytest.raises(OffsetOutOfRangeError, match=r"offset 3 is outside .* holds 4 to 7"),
        ):
            consumer.poll(1)
        assert other.describe_group("late").lag == {"inbox": {0: 3}}
        with pytest.raises(OffsetOutOfRangeError, match="offset 3 is outside"):
            other.read("inbox", start={0: 3})
        found = other.read("inbox").read_all()["offset"].to_pylist()
        assert sorted(found) == [4, 5, 6]


def test_a_consumer_that_begins_after_a_trim_was_told_of_nothing(
    store: kmq.Store, queues: KeyedQueues
):
    queues.put_batch(["a", "b"], [b"0", b"1"])
    store.trim("inbox", {0: 2})
    with store.consumer("new", topics=["inbox"], auto_offset_reset="earliest") as consumer:
        assert consumer.poll(0) is None
        queues.put("a", b"2").result()
        consumer.seek_to_beginning()
        assert consumer.poll(9).value == b"2"
        consumer.commit()
        store.trim("inbox", {0: 3})
        assert consumer.poll(0) is None


@pytest.mark.parametrize("where", WHERE)
def test_a_trace_says_which_messages_were_trimmed(store: kmq.Store, where: str):
    _put(store, where)
    store.trim("inbox", {0: 5})
    told = [{step.event for step in store.trace("inbox", 0, offset)} for offset in range(7)]
    assert ["trimmed" in events for events in told] == [True] * 5 + [False] * 2
    assert "sealed" not in told[4] or where != "behind the runs"


def test_copies_have_the_same_indexes(store: kmq.Store, queues: KeyedQueues, tmp_path: Path):
    with kmq.open(tmp_path / "late") as late, kmq.open(tmp_path / "kept up") as other:
        queues.put_batch(["a", "b", "a", "d"], [b"0", b"1", b"2", b"x"])
        for target in (late, other):
            copy_topics(store.log, target.log, ["inbox"])
        queues.put_batch(["a", "b"], [b"3", b"4"])
        queues.delete("d")
        copy_topics(store.log, other.log, ["inbox"])
        queues.put_batch(["a", "b", "d"], [b"5", b"6", b"7"])
        store.trim("inbox", {0: 8})
        with kmq.open(tmp_path / "new") as new:
            for target in (late, other, new):
                copy_topics(store.log, target.log, ["inbox"])
                copy_topics(store.log, target.log, ["inbox"])
                copied = target.keyed_queues("inbox")
                assert [copied.span(name)[1] for name in "abd"] == [4, 3, 1]
                assert copied.get("a", 4, 9) == []
                assert copied.get("b", 2, 9) == [b"6"]
                assert copied.get("d", 0, 9) == [b"7"]
                assert target.verify(deep=True).ok


def test_a_copy_knows_that_the_very_first_message_was_trimmed(
    store: kmq.Store, queues: KeyedQueues, tmp_path: Path
):
    queues.put_batch(["a", "b"], [b"0", b"0"])
    store.trim("inbox", {0: 1})
    with kmq.open(tmp_path / "copy") as other:
        copy_topics(store.log, other.log)
        assert other.offsets("inbox") == {0: (1, 2)}
        assert other.keyed_queues("inbox").span("a") == (1, 1)


def test_a_checkpoint_knows_that_the_very_first_message_was_trimmed(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "b"], ["0", "0"])
        assert store.trim("inbox", {0: 1}).starts == {"inbox": {0: 1}}
        store.checkpoint()
        assert store.offsets("inbox") == {0: (1, 2)}
    with kmq.open(tmp_path / "store") as store:
        assert store.offsets("inbox") == {0: (1, 2)}
        with pytest.raises(kmq.OffsetOutOfRangeError):
            store.read("inbox", start={0: 0}).read_all()
        assert store.keyed_queues("inbox").span("a") == (1, 1)


def test_names_that_take_more_than_what_goes_wait(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "NAMES_BYTES", 0)
    with open_engine(file_bytes=65_536) as store:
        queues = store.keyed_queues("inbox", retention_bytes=1)
        names = [f"queue {n}" for n in range(50)]
        queues.put_batch(names, [b"x" * 500] * 50)
        store.seal()
        queues.put("z", b"x").result()
        assert store.maintain().trimmed.rows == 50
        queues.put("z", b"x").result()
        assert store.maintain().trimmed.rows == 0
        topic = store.log.refresh().topic("inbox")
        assert queue_starts.is_worth_it(topic, 0, 51, 2**62), "what is old enough goes at any cost"
        queues.put_batch(names, [b"x" * 500] * 50)
        queues.put("z", b"x").result()
        assert store.maintain().trimmed.rows == 52


def test_a_trim_of_whole_rows_reads_no_message(monkeypatch: pytest.MonkeyPatch):
    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("records are read")

    with open_engine() as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "b"], [b"0", b"1"])
        store.seal()
        queues.put("a", b"2").result()
        monkeypatch.setattr(RunIndex, "records", refused)
        monkeypatch.setattr(RunIndex, "values", refused)
        store.trim("inbox", {0: 2})
        monkeypatch.undo()
        assert queues.get("a", 1, 9) == [b"2"]


def test_a_store_that_was_trimmed_by_another_handle_is_followed(tmp_path: Path):
    with kmq.open(tmp_path / "store") as one, kmq.open(tmp_path / "store") as other:
        ours, theirs = one.keyed_queues("inbox"), other.keyed_queues("inbox")
        ours.put_batch(["a", "b", "a"], [b"0", b"1", b"2"])
        assert theirs.size("a") == 2
        one.trim("inbox", {0: 2})
        one.checkpoint()
        one.collect(grace=0)
        assert (theirs.span("a"), theirs.put("a", b"3").result()) == ((1, 2), 2)
        assert ours.get_arrow("a", 1, 9) == pa.table(
            {"index": pa.array([1, 2], pa.int64()), "value": pa.array([b"2", b"3"], pa.binary())}
        )
