"""Deleting keyed queues: they end at once, for everybody, and begin again from index 0.

Finds: messages of a former life that are seen again or counted, an end that reaches too far or too
short, indexes of other queues that move, a delete that costs what the queue has, and names that
are left for ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.errors import InvalidRequestError, NotFoundError
from kmq_storage import limits

WHERE = ("behind the runs", "sealed", "sealed together", "merged")


def _settle(store: kmq.Store, where: str, *, ended: bool) -> None:
    """Have what is there in runs, or not; before or after the end."""
    if where in ("sealed", "merged") or (where == "sealed together" and ended):
        store.seal()
    if where == "merged" and ended:
        store.compact("inbox")


@pytest.mark.parametrize("where", WHERE)
def test_a_deleted_queue_is_unknown_and_begins_anew(
    store: kmq.Store, queues: KeyedQueues, where: str
):
    queues.put_batch(["a", "b", "a"], [b"1", b"2", b"3"])
    _settle(store, where, ended=False)
    queues.delete("a")
    _settle(store, where, ended=True)
    assert (queues.get("a", 0, 9), queues.size("a"), queues.names()) == ([], 0, ["b"])
    assert queues.get_many(["a", "b"], 0, 9)["value"].to_pylist() == [b"2"]
    assert queues.put_batch(["a", "b", "a"], [b"4", b"5", b"6"]) == [0, 1, 1]
    _settle(store, where, ended=True)
    assert queues.get("a", 0, 9) == [b"4", b"6"]
    assert queues.get("a", 1, 9) == [b"6"]
    assert queues.get("b", 0, 9) == [b"2", b"5"]
    found = queues.get_many(["b", "a", "c"], [1, 0, 0], 9)
    assert found["value"].to_pylist() == [b"5", b"4", b"6"]
    assert found["index"].to_pylist() == [1, 0, 1]
    assert queues.names() == ["a", "b"]
    assert store.verify(deep=True).ok


def test_several_queues_end_by_one_commit_whatever_they_have(store: kmq.Store):
    queues = store.keyed_queues("inbox")
    names = [f"q{number}" for number in range(50)]
    queues.put_batch(names * 100, [b"x" * 100] * 5_000)
    before = store.topics()[0]
    commits = len(list(store.commits()))
    queues.delete(*names[1:])
    assert len(list(store.commits())) == commits + 1
    assert store.topics()[0].bytes - before.bytes < 500
    assert queues.names() == ["q0"]


def test_who_ends_an_unknown_queue_does_no_harm(queues: KeyedQueues):
    queues.delete()
    queues.delete("a", b"a", "a")
    assert queues.names() == []
    assert queues.put("a", b"1").result() == 0


@pytest.mark.parametrize("name", ["", "a" * 65_536, None, 7], ids=["empty", "long", "None", "7"])
def test_bad_names_are_refused_and_nothing_ends(queues: KeyedQueues, name: Any):
    queues.put("a", b"1").result()
    with pytest.raises(InvalidRequestError):
        queues.delete("a", name)
    assert queues.size("a") == 1


def test_a_delete_stands_behind_what_its_caller_put_before_it(queues: KeyedQueues):
    puts = [queues.put("a", b"1"), queues.put("a", b"2")]
    queues.delete("a")
    later = queues.put("a", b"3")
    assert [put.result() for put in puts] == [0, 1]
    assert later.result() == 0
    assert queues.get("a", 0, 9) == [b"3"]


def test_other_handles_and_later_ones_see_the_end(tmp_path: Path):
    with kmq.open(tmp_path / "store") as one, kmq.open(tmp_path / "store") as other:
        ours, theirs = one.keyed_queues("inbox"), other.keyed_queues("inbox")
        ours.put_batch(["a", "a"], [b"1", b"2"])
        assert theirs.size("a") == 2
        ours.delete("a")
        assert theirs.names() == []
        assert theirs.put("a", b"3").result() == 0
        one.checkpoint()
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        assert (queues.get("a", 0, 9), queues.put("a", b"4").result()) == ([b"3"], 1)


def test_indexes_that_are_asked_for_late_are_those_of_their_life(queues: KeyedQueues):
    first = queues.put_batch(["a", "b", "a"], [b"1", b"2", b"3"])
    queues.delete("a")
    second = queues.put_batch(["b", "a"], [b"4", b"5"])
    queues.delete("a", "b")
    assert first == [0, 0, 1]
    assert second == [1, 0]


def test_the_index_of_a_message_that_was_dropped_is_not_invented(
    store: kmq.Store, queues: KeyedQueues
):
    put = queues.put("a", b"1")
    batch = queues.put_batch(["a", "b"], [b"2", b"3"])
    queues.delete("a")
    store.seal()
    for look in (put.result, lambda: list(batch)):
        with pytest.raises(NotFoundError, match="ended since") as told:
            look()
        assert not told.value.retryable, "who puts again doubles what is stored"
    assert queues.put("b", b"4").result() == 1


def test_of_a_batch_only_the_indexes_of_dropped_messages_are_lost(
    store: kmq.Store, queues: KeyedQueues
):
    batch = queues.put_batch(["gone", "kept", "gone", "late", "kept"], [b"x"] * 5)
    queues.delete("gone", "late")
    store.seal()
    assert (batch[1], batch[-1], batch[4:]) == (0, 1, [1])
    for at, name in ((0, b"gone"), (3, b"late")):
        with pytest.raises(NotFoundError, match="ended since") as told:
            batch[at]
        assert told.value.context["queue"] == name
    with pytest.raises(NotFoundError):
        batch[1:]
    with pytest.raises(IndexError):
        batch[5]


def test_a_producer_ends_a_queue_by_a_record_without_a_value(store: kmq.Store, queues: KeyedQueues):
    with store.producer() as producer:
        with producer.transaction() as tx:
            tx.send("inbox", b"1", "a")
            tx.send("inbox", None, "a")
            tx.send("inbox", b"2", "a")
            tx.send("inbox", None, "b")
        assert queues.get("a", 0, 9) == [b"2"]
        assert queues.names() == ["a"]


def test_what_is_dead_is_dropped_by_sealing_and_merging(store: kmq.Store, queues: KeyedQueues):
    queues.put_batch(["a"] * 9 + ["b"], [b"x"] * 10)
    store.seal()
    queues.put("a", b"x").result()
    queues.delete("a")
    store.seal()
    assert store.read("inbox").read_all()["offset"].to_pylist() == [*range(10), 11]
    assert store.topics()[0].rows == 11
    store.compact("inbox")
    assert store.read("inbox").read_all()["offset"].to_pylist() == [9, 11]
    assert store.topics()[0].rows == 2
    assert store.topics()[0].offsets == {0: (0, 12)}


def test_what_was_put_behind_an_end_in_one_run_is_kept_by_merging(
    store: kmq.Store, queues: KeyedQueues
):
    for turn in (b"1", b"2"):
        queues.put_batch(["a", "b"], [turn, turn])
        queues.delete("a")
        queues.put("a", b"after " + turn).result()
        store.seal()
    store.compact("inbox")
    assert queues.get("a", 0, 9) == [b"after 2"]
    assert queues.get("b", 0, 9) == [b"1", b"2"]
    assert store.topics()[0].rows == 4


def test_nothing_is_left_of_a_queue_when_its_end_is_old(
    store: kmq.Store, queues: KeyedQueues, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TOMBSTONE_DELAY", -1.0)
    for _ in range(2):
        queues.put_batch(["a", "b"], [b"x", b"y"])
        queues.delete("a")
        store.seal()
    store.compact("inbox")
    assert store.read("inbox").read_all()["key"].to_pylist() == [b"b", b"b"]
    assert queues.get("b", 0, 9) == [b"y", b"y"]
    assert queues.put("a", b"z").result() == 0


def test_a_topic_whose_queues_all_ended_goes_on(
    store: kmq.Store, queues: KeyedQueues, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TOMBSTONE_DELAY", -1.0)
    for _ in range(2):
        queues.put("a", b"x").result()
        queues.delete("a")
        store.seal()
    store.compact("inbox")
    store.checkpoint()
    assert store.topics()[0].rows == 0
    assert (queues.names(), queues.put("a", b"z").result()) == ([], 0)
    store.seal()
    store.compact("inbox")
    assert queues.get("a", 0, 9) == [b"z"]
    assert store.verify(deep=True).ok


def test_a_topic_that_is_gone_has_no_queue_to_delete(store: kmq.Store, queues: KeyedQueues):
    queues.put("a", b"1").result()
    store.delete_topic("inbox")
    with pytest.raises(NotFoundError):
        queues.delete("a")


def test_a_compaction_tells_how_many_messages_of_ended_queues_it_dropped(store: kmq.Store):
    queues = store.keyed_queues("inbox")
    queues.put_batch(["a", "b"] * 50, [b"x"] * 100)
    store.seal()
    queues.put_batch(["a"] * 5, [b"y"] * 5)
    store.seal()
    assert store.compact("inbox").dropped == 0
    queues.delete("a")
    store.seal()
    assert store.compact("inbox").dropped == 55
    assert store.describe_topic("inbox").rows == 51


@pytest.mark.parametrize("sealed", [False, True])
def test_a_compaction_drops_the_messages_of_a_queue_that_was_just_deleted(
    store: kmq.Store, *, sealed: bool
):
    queues = store.keyed_queues("inbox")
    queues.put_batch(["a", "b"] * 50, [b"x"] * 100)
    if sealed:
        store.seal()
    queues.delete("a")
    store.compact("inbox")
    left = store.read("inbox").read_all()
    assert left["key"].to_pylist().count(b"a") == 1  # its end
    assert left.num_rows == store.describe_topic("inbox").rows == 51
    assert (queues.size("a"), queues.size("b")) == (0, 50)
