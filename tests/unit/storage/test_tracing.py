"""The path of a record, as the commit log tells it.

Finds: another record's commits, groups that are taken for past it, and a path that is told as whole
though its beginning was collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.errors import NotFoundError, OffsetOutOfRangeError
from kmq_storage.format.entries import BatchIdEntry
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.queues.lost_records import NOT_THERE
from tests.support.engine import Sent, open_engine, send_rows, unit_of_rows


@pytest.fixture
def store() -> Iterator[kmq.Store]:
    """A store with topic `t` of two partitions, and ten records in the first one."""
    with open_engine() as store:
        store.create_topic("t", partitions=2)
        for number in range(10):
            send_rows(store.log, "t", [Sent(b"k", b"%d" % number)])
        yield store


def _events(store: kmq.Store, offset: int) -> list[str]:
    return [step.event for step in store.trace("t", 0, offset)]


def _facts(store: kmq.Store, offset: int, event: str) -> list[dict[str, Any]]:
    return [dict(s.facts) for s in store.trace("t", 0, offset) if s.event == event]


def _collect_commits(store: kmq.Store) -> None:
    """Have all earlier commits collected."""
    store.seal()
    store.checkpoint()
    for _ in range(200):
        send_rows(store.log, "t", [Sent(b"k", bytes(200))], partition=1)
    store.seal()
    store.checkpoint()
    store.collect(grace=0)
    store.checkpoint()
    store.collect(grace=0)
    assert next(iter(store.commits())).lsn > 15


def test_a_record_was_sent_in_its_commit(store: kmq.Store):
    (step,) = store.trace("t", 0, 4)
    (commit,) = [each for each in store.commits() if each.lsn == step.lsn]
    assert (step.event, step.time) == ("sent", commit.time)
    assert commit.entries[0].base_offset == 4


def test_its_sender_is_the_one_behind_it_in_the_commit(store: kmq.Store):
    with store.producer(name="till-7") as producer:
        producer.send("t", b"v", partition=0).result(10)
        producer.send("t", b"v", partition=0).result(10)
    assert _facts(store, 11, "sent") == [{"producer": "till-7", "sequence": 1}]


def test_a_batch_of_an_application_is_named(store: kmq.Store):
    unit = unit_of_rows(store.log, "t", [Sent(b"k", b"v")])
    store.log.commit([Unit((*unit.entries, BatchIdEntry("query", 3)), unit.bodies)])
    assert _facts(store, 10, "sent") == [{"application": "query", "version": 3}]


def test_groups_pass_a_record_once_until_they_are_set_back(store: kmq.Store):
    for group, offset in (("a", 4), ("a", 5), ("b", 9), ("a", 7), ("a", 2), ("a", 5)):
        store.set_group_offsets(group, {"t": {0: offset}})
    store.set_group_offsets("c", {"t": {1: 0}})
    groups = [
        (step.event, step.facts["group"], step.facts["committed"])
        for step in store.trace("t", 0, 4)[1:]
    ]
    assert groups == [
        ("passed", "a", 5),
        ("passed", "b", 9),
        ("rewound", "a", 2),
        ("passed", "a", 5),
    ]


def test_a_group_that_was_deleted_begins_anew(store: kmq.Store):
    store.set_group_offsets("a", {"t": {0: 5}})
    store.delete_group("a")
    store.set_group_offsets("a", {"t": {0: 5}})
    assert _events(store, 4) == ["sent", "passed", "passed"]


def test_where_it_stands_and_that_it_was_given_up_is_told(store: kmq.Store):
    store.seal()
    store.trim("t", {0: 5})
    store.trim("t", {0: 6})
    assert _events(store, 4) == ["sent", "sealed", "trimmed"]
    assert _events(store, 5) == ["sent", "sealed", "trimmed"]
    assert _events(store, 6) == ["sent", "sealed"]
    place = store.log.refresh().topic("t").places(0, 6, 10)[0]
    assert _facts(store, 6, "sealed") == [{"file": place.location.file}]


def test_deliveries_of_a_queue_and_their_answers_are_told(store: kmq.Store):
    store.create_queue("q", topics=["t"], max_deliveries=3)
    store.create_queue("other", topics=["t"])
    queue = store.queue("q")
    (held,) = queue.receive()
    held.extend(10)
    held.nack(delay=0)
    queue.receive()[0].reject("broken")
    store.queue("other").receive()[0].ack()
    told = [
        (step.event, step.facts["queue"], step.facts["delivery"])
        for step in store.trace("t", 0, 0)[1:]
    ]
    assert told == [
        ("delivered", "q", 1),
        ("extended", "q", 1),
        ("retried", "q", 1),
        ("delivered", "q", 2),
        ("dead-lettered", "q", 2),
        ("delivered", "other", 1),
        ("acked", "other", 1),
    ]
    assert _events(store, 1) == ["sent"]


def test_a_dead_letter_is_followed_from_its_topic_and_back_to_its_queue(store: kmq.Store):
    store.create_queue("q", topics=["t"], max_deliveries=1)
    queue = store.queue("q")
    held = queue.receive(3)
    held[1].reject("broken")
    held[2].nack()
    (dead,) = _facts(store, 1, "dead-lettered")
    where = {"to_queue": "q.dlq", "to_offset": 0, "reason": "broken"}
    assert dead == {"queue": "q", "delivery": 1, **where}
    (dead,) = _facts(store, 2, "dead-lettered")
    assert (dead["to_offset"], dead["reason"]) == (1, "max_deliveries")
    queue.redrive()
    sent, delivered, acked = store.trace("queue:q.dlq", 0, 1)
    assert dict(sent.facts) == {
        "from_queue": "q",
        "from_topic": "t",
        "from_partition": 0,
        "from_offset": 2,
        "from_count": 1,
        "from_reason": "max_deliveries",
    }
    assert (delivered.event, acked.event) == ("delivered", "acked")
    went = {"queue": "q.dlq", "delivery": 1, "to_queue": "q", "to_offset": 1}
    assert dict(acked.facts) == went
    (back,) = store.trace("queue:q", 0, 1)
    assert dict(back.facts) == {"moved_back_from": "q.dlq"}


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_a_dead_letter_that_was_moved_back_and_trimmed_is_followed_all_the_same(
    tmp_path: Path, place: str
):
    url = tmp_path if place == "folder" else "memory://trimmed-letters"
    with kmq.open(url) as store:
        store.create_queue("q")
        with store.producer() as producer:
            producer.send_to_queue("q", b"1")
            producer.send_to_queue("q", b"2").result()
        for held, reason in zip(store.queue("q").receive(2), ("a", "b"), strict=True):
            held.reject(reason)
        store.queue("q").redrive()
        paths = [store.trace(f"queue:{name}", 0, n) for name, n in [("q", 1), ("q.dlq", 1)]]
        for back in store.queue("q").receive(2):
            back.ack()
        store.maintain()
        assert "trimmed" in [step.event for step in store.trace("queue:q.dlq", 0, 1)]
        for former, name in zip(paths, ("q", "q.dlq"), strict=True):
            assert store.trace(f"queue:{name}", 0, 1)[: len(former)] == former
        (dead,) = [step for step in paths[0] if step.event == "dead-lettered"]
        assert (dead.facts["to_offset"], dead.facts["reason"]) == (1, "b")


def test_a_deleted_queue_is_named_and_not_taken_for_a_new_one_of_its_name(store: kmq.Store):
    store.create_queue("q", topics=["t"])
    rejected, acked = store.queue("q").receive(2)
    rejected.reject("broken")
    acked.ack()
    store.delete_queue("q")
    old = {"queue": "q", "deleted": True, "delivery": 1}
    where = {"to_queue": "q.dlq", "to_offset": 0, "reason": "broken"}
    assert _facts(store, 0, "dead-lettered") == [old | where]
    store.create_queue("q", topics=["t"])
    store.queue("q").redrive()
    assert store.trace("queue:q", 0, 0)[0].facts == {"moved_back_from": "q.dlq"}
    store.delete_queue("q.dlq")
    assert store.trace("queue:q", 0, 0)[0].facts == {"moved_back_from": "q.dlq"}
    again = store.queue("q").receive(9)
    next(each for each in again if (each.topic, each.offset) == ("t", 1)).ack()
    assert _facts(store, 1, "acked") == [old, {"queue": "q", "delivery": 1}]


def test_dead_letters_of_one_commit_are_told_apart(store: kmq.Store):
    store.create_queue("q.dlq")
    store.create_queue("q", topics=["t"], max_deliveries=1, lock_timeout=0.001)
    queue = store.queue("q")
    queue.receive(3)
    while store.queue("q.dlq").stats().ready < 3:
        queue.receive(1)
    for offset in range(3):
        (dead,) = _facts(store, offset, "dead-lettered")
        sent = store.trace("queue:q.dlq", 0, dead["to_offset"])[0]
        assert (sent.event, sent.facts["from_offset"]) == ("sent", offset)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_where_dead_letters_were_is_told_when_their_queue_is_deleted(
    store: kmq.Store, is_made_again: bool
):
    store.create_queue("q", topics=["t"])
    for number, held in enumerate(store.queue("q").receive(2)):
        held.reject(f"reason {number}")
    (before,) = _facts(store, 1, "dead-lettered")
    store.delete_queue("q.dlq")
    if is_made_again:
        store.create_queue("q.dlq")
    assert _facts(store, 1, "dead-lettered") == [before | {"to_deleted": True}]
    assert (before["to_queue"], before["to_offset"]) == ("q.dlq", 1)


def test_what_is_no_longer_in_the_log_is_told_without_its_commit(store: kmq.Store):
    store.set_group_offsets("a", {"t": {0: 5}})
    store.set_group_offsets("b", {"t": {0: 4}})
    _collect_commits(store)
    store.set_group_offsets("b", {"t": {0: 9}})
    told = [(step.event, step.lsn is None, step.time is None) for step in store.trace("t", 0, 4)]
    assert told == [("sent", True, True), ("passed", True, True), ("passed", False, False)]


def test_a_later_commit_is_not_taken_for_one_that_is_no_longer_in_the_log(store: kmq.Store):
    store.set_group_offsets("g", {"t": {0: 5}})
    store.trim("t", {0: 2})
    _collect_commits(store)
    store.set_group_offsets("g", {"t": {0: 9}})
    store.trim("t", {0: 3})
    told = [[(s.event, s.lsn is None) for s in store.trace("t", 0, n)] for n in (1, 2)]
    assert told[0] == [("sent", True), ("passed", True), ("trimmed", True)]
    assert told[1] == [("sent", True), ("passed", True), ("trimmed", False)]
    store.set_group_offsets("g", {"t": {0: 4}})
    assert _events(store, 4) == ["sent", "passed", "rewound"]


def test_where_no_checkpoint_tells_what_was_before_no_commit_is_named(store: kmq.Store):
    store.set_group_offsets("g", {"t": {0: 5}})
    store.trim("t", {0: 2})
    _collect_commits(store)
    store.set_group_offsets("g", {"t": {0: 9}})
    store.trim("t", {0: 3})
    store.checkpoint()
    store.collect(grace=0)
    told = [[(s.event, s.lsn is None) for s in store.trace("t", 0, n)] for n in (1, 7)]
    assert told[0] == [("sent", True), ("passed", True), ("trimmed", True)]
    assert told[1][:2] == [("sent", True), ("passed", True)]


def test_what_a_queue_finished_is_told_when_it_is_no_longer_known_how(store: kmq.Store):
    store.create_queue("q", topics=["t"])
    store.create_queue("idle", topics=["t"])
    store.create_queue("late")
    store.bind_queue("late", "t", start="latest")
    acked, rejected, retried, held = store.queue("q").receive(5)[:4]
    acked.ack()
    rejected.reject("broken")
    retried.nack(delay=0)
    _collect_commits(store)
    store.delete_queue("q.dlq")
    held.ack()
    told = [[(s.event, s.facts.get("queue")) for s in store.trace("t", 0, n)[1:]] for n in range(7)]
    finished = ("finished", "q")
    assert told == [[finished], [finished], [], [("acked", "q")], [], [], []]


def test_that_a_record_was_cut_out_is_told_before_and_after_its_commit_is_gone(store: kmq.Store):
    store.create_queue("q", topics=["t"])
    place, lsn = (store.describe_topic("t").topic_id.bytes, 0), store.log.refresh().lsn
    store.log.commit([Unit((GapEntry(*place, 4, 5, 1, 1, lsn, "damaged"),))])
    assert _events(store, 4) == ["sent", "cut out"]
    with pytest.raises(kmq.DataLossError):
        store.queue("q").receive(9)
    *_, finished = store.trace("t", 0, 4)
    assert (finished.event, finished.facts["reason"]) == ("finished", NOT_THERE)
    _collect_commits(store)
    assert _events(store, 4) == ["sent", "cut out", "finished"]
    assert _facts(store, 4, "cut out") == [{"reason": "damaged"}]
    assert "cut out" not in _events(store, 5)


def test_a_filter_that_may_have_refused_what_is_finished_is_told(store: kmq.Store):
    store.create_queue("q")
    store.bind_queue("q", "t", filter="n = 1")
    with store.producer() as producer:
        producer.send_batch("t", [b"-", b"+"], properties=[{"n": n} for n in (0, 1)], partition=0)
    store.queue("q").receive()[0].ack()
    _collect_commits(store)
    assert _facts(store, 10, "finished") == [{"queue": "q", "filter": "n = 1"}]
    assert _facts(store, 11, "finished") == [{"queue": "q"}]
    with store.producer() as producer:
        producer.send("t", b"-", properties={"n": 0}, partition=0).result()
    assert store.queue("q").receive() == []
    assert _facts(store, 12, "refused") == [{"queue": "q", "filter": "n = 1"}]
    store.bind_queue("q", "t", filter="n = 2")
    assert _facts(store, 12, "refused") == [{"queue": "q"}], "today's filter is another one"
    send_rows(store.log, "t", [Sent(b"k", b"-")])
    _collect_commits(store)
    assert store.queue("q").receive() == []
    assert _facts(store, 13, "refused") == [{"queue": "q", "filter": "n = 2"}]
    assert _facts(store, 13, "finished") == []


def test_a_dead_letter_and_its_record_tell_of_each_other_when_their_commits_are_gone(
    store: kmq.Store,
):
    store.create_queue("q", topics=["t"])
    acked, *rejected = store.queue("q").receive(3)
    acked.ack()
    for number, each in enumerate(rejected):
        each.reject(f"broken {number}")
    _collect_commits(store)
    assert [_events(store, n)[1:] for n in range(4)] == [["finished"], *[["dead-lettered"]] * 2, []]
    why = {"to_offset": 1, "reason": "broken 1"}
    assert _facts(store, 2, "dead-lettered") == [{"queue": "q", "to_queue": "q.dlq", **why}]
    origin = {"from_topic": "t", "from_partition": 0, "from_offset": 2}
    (letter,) = store.trace("queue:q.dlq", 0, 1)
    assert letter.facts == {"from_queue": "q", **origin, "from_count": 1, "from_reason": "broken 1"}
    store.queue("q").redrive(1)
    _collect_commits(store)
    assert store.trace("queue:q", 0, 0)[0].facts == {"moved_back_from": "q.dlq"}


def test_a_dead_letter_of_an_earlier_topic_of_the_name_is_not_taken_for_a_records_own(
    store: kmq.Store,
):
    store.create_queue("q", topics=["t"])
    store.queue("q").receive(1)[0].reject("broken")
    store.delete_topic("t")
    store.create_topic("t", partitions=2)
    send_rows(store.log, "t", [Sent(b"k", b"new", time=1)])
    store.bind_queue("q", "t")
    store.queue("q").receive(1)[0].ack()
    _collect_commits(store)
    assert _events(store, 0) == ["sent", "finished"]


def test_that_a_record_was_trimmed_is_told_also_in_a_clone_which_has_no_commit_of_it(
    tmp_path: Path,
):
    with kmq.open(tmp_path / "store") as store, store.producer() as producer:
        store.create_topic("t")
        producer.send_batch("t", [b"1", b"2"]).result()
        store.trim("t", {0: 1})
    kmq.clone(tmp_path / "store", tmp_path / "clone")
    with kmq.open(tmp_path / "clone") as clone:
        told = [(step.event, step.lsn, dict(step.facts)) for step in clone.trace("t", 0, 0)]
        assert told == [("sent", None, {}), ("trimmed", None, {"start": 1})]
        assert _events(clone, 1) == ["sent"]


@pytest.mark.parametrize("offset", [-1, 10])
def test_an_offset_that_nobody_has_yet_is_refused(store: kmq.Store, offset: int):
    with pytest.raises(OffsetOutOfRangeError, match=f"t-0: offset {offset}"):
        store.trace("t", 0, offset)


def test_a_partition_that_is_not_there_is_named(store: kmq.Store):
    with pytest.raises(NotFoundError, match=r"Partition\[t-2\]"):
        store.trace("t", 2, 0)
