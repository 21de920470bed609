"""Dead letters: when a record becomes one, what it says, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.queues import dead_letters
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.queue_entries import AnswerEntry
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.queue import Queue
from tests.simulation.queue_mutants import gives_back_what_counts_as_handed_out
from tests.support.clock import Clock


def _send(store: kmq.Store, queue: str, *values: bytes, **facts: Any) -> None:
    with store.producer() as producer:
        for value in values:
            producer.send_to_queue(queue, value, **facts)


def _names(store: kmq.Store) -> list[str]:
    return [info.name for info in store.queues()]


def test_after_so_many_failures_a_record_is_a_dead_letter_with_its_origin(store: kmq.Store):
    store.create_topic("orders", partitions=2)
    with store.producer() as producer:
        producer.send("orders", b"bad", b"k", headers={"h": b"x"}, properties={"n": 1}, partition=1)
    store.create_queue("q", topics=["orders"], max_deliveries=2, backoff=(0,))
    queue = store.queue("q")
    assert _names(store) == ["q"]
    for _ in range(2):
        (held,) = queue.receive()
        held.nack()
    assert queue.receive() == []
    assert _names(store) == ["q", "q.dlq"]
    (letter,) = store.queue("q.dlq").receive()
    assert (letter.value, letter.key, letter.headers) == (b"bad", b"k", (("h", b"x"),))
    assert letter.timestamp == held.timestamp
    assert letter.properties == {
        "n": 1,
        "dead_letter_queue": "q",
        "dead_letter_topic": "orders",
        "dead_letter_partition": 1,
        "dead_letter_offset": 0,
        "dead_letter_count": 2,
        "dead_letter_reason": "max_deliveries",
    }
    assert queue.stats().dead == 1


def test_a_record_whose_lock_ended_too_often_is_one_too(store: kmq.Store, clock: Clock):
    store.create_queue("q", max_deliveries=1, lock_timeout=30)
    _send(store, "q", b"1")
    queue = store.queue("q")
    (held,) = queue.receive()
    clock.pass_seconds(31)
    assert queue.receive() == []
    (letter,) = store.queue("q.dlq").receive()
    assert letter.properties["dead_letter_count"] == 1
    assert "dead_letter_topic" not in letter.properties
    with pytest.raises(kmq.LeaseExpiredError):
        held.ack()


def test_who_receives_dead_letters_gets_those_that_nobody_else_would_find(
    store: kmq.Store, clock: Clock
):
    store.create_queue("dead")
    store.create_queue("q", max_deliveries=1, lock_timeout=30, dead_letter="dead")
    _send(store, "q", b"1")
    store.queue("q").receive()
    clock.pass_seconds(31)
    assert store.queue("dead").receive() != []


def test_a_rejected_record_is_a_dead_letter_at_once_with_the_reason(store: kmq.Store):
    store.create_queue("q")
    _send(store, "q", b"1", b"2")
    one, two = store.queue("q").receive(2)
    one.reject("no such customer")
    two.reject()
    letters = store.queue("q.dlq").receive(9)
    reasons = [each.properties["dead_letter_reason"] for each in letters]
    assert reasons == ["no such customer", "rejected"]


def test_dead_letters_go_back_in_their_order_and_count_from_zero(store: kmq.Store):
    store.create_queue("shared")
    for name in ("q", "other"):
        store.create_queue(name, dead_letter="shared")
        _send(store, name, *(b"%s%d" % (name.encode(), n) for n in range(4)))
        for held in store.queue(name).receive(9):
            held.reject("r")
    queue = store.queue("q")
    assert queue.redrive(max_records=1) == 1
    assert queue.redrive() == 3
    assert queue.redrive() == 0
    back = queue.receive(9)
    assert [each.value for each in back] == [b"q0", b"q1", b"q2", b"q3"]
    assert {each.delivery_count for each in back} == {1}
    assert {each.properties["dead_letter_reason"] for each in back} == {"r"}
    left = store.queue("shared").receive(9)
    assert [each.value for each in left] == [b"other%d" % n for n in range(4)]
    assert {each.delivery_count for each in left} == {1}


def test_dead_letters_of_others_are_passed_once_however_long_that_takes(
    store: kmq.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    store.create_queue("letters", lock_timeout=30)
    for name, count in (("a", 6), ("b", 2)):
        store.create_queue(name, dead_letter="letters")
        _send(store, name, *[name.encode()] * count)
        for held in store.queue(name).receive(count):
            held.reject()
    acquire, calls = kmq.Queue._acquire, iter(range(10))

    def slow(*arguments: Any, **options: Any) -> Any:
        next(calls)
        clock.pass_seconds(20)
        return acquire(*arguments, **options)

    monkeypatch.setattr("kmq_spark.client.queues.redriving.MOVED", 2)
    with monkeypatch.context() as patched:
        patched.setattr(kmq.Queue, "_acquire", slow)
        assert store.queue("b").redrive() == 2
    letters = store.queue("letters").receive(9)
    assert [(each.value, each.delivery_count) for each in letters] == [(b"a", 1)] * 6


def test_that_what_is_given_back_counts_is_found_when_it_is_planted(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    gives_back_what_counts_as_handed_out(monkeypatch)
    with pytest.raises(AssertionError):
        test_dead_letters_go_back_in_their_order_and_count_from_zero(store)


def test_a_dead_letter_is_back_and_done_in_one_commit(store: kmq.Store):
    store.create_queue("q")
    _send(store, "q", b"1")
    store.queue("q").receive()[0].reject()
    begun = store.log.refresh().lsn
    store.queue("q").redrive()
    kinds = [{type(entry) for entry in commit.entries} for commit in store.commits(begun + 1)]
    assert [each for each in kinds if RecordsEntry in each] == [{RecordsEntry, AnswerEntry}]


def test_there_is_nothing_to_drive_back_where_nothing_ever_died(store: kmq.Store):
    store.create_queue("q")
    assert store.queue("q").redrive() == 0
    assert _names(store) == ["q"]


def test_dead_letters_die_no_second_time(store: kmq.Store):
    store.create_queue("q", max_deliveries=1)
    _send(store, "q", b"1")
    store.queue("q").receive()[0].reject()
    letters = store.queue("q.dlq")
    for _ in range(20):
        (held,) = letters.receive()
        held.nack(0)
    assert _names(store) == ["q", "q.dlq"]


def test_a_letter_that_died_among_dead_letters_finds_its_way_home(store: kmq.Store):
    store.create_queue("q")
    _send(store, "q", b"1", b"2")
    queue = store.queue("q")
    for each in queue.receive(9):
        each.reject("first")
    letters = store.queue("q.dlq")
    letters.receive(1)[0].reject("second")
    (twice,) = store.queue("q.dlq.dlq").receive()
    assert twice.properties["dead_letter_queue"] == "q.dlq"
    assert twice.properties["dead_letter_home"] == "q"
    twice.nack(0)
    assert (queue.redrive(), letters.redrive(), queue.redrive()) == (1, 1, 1)
    back = queue.receive(9)
    assert [each.value for each in back] == [b"2", b"1"]
    (moved, *_) = store.trace("queue:q", 0, back[1].offset)
    assert dict(moved.facts) == {"moved_back_from": "q.dlq"}
    back[1].reject("third")
    (again,) = letters.receive()
    assert again.properties["dead_letter_queue"] == "q"
    assert "dead_letter_home" not in again.properties


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_a_letter_that_died_three_levels_deep_goes_home_a_level_at_each_redrive(
    store: kmq.Store, names: list[str]
):
    for name in names:
        store.create_queue(name, dead_letter="dl")
        _send(store, name, name.encode())
    for name in (*names, "dl", "dl.dlq"):
        for each in store.queue(name).receive(9):
            each.reject()
    up = [store.queue(name) for name in ("dl.dlq", "dl", *names)]
    assert [each.redrive() for each in up] == [len(names), len(names), *(1 for _ in names)]
    assert [each.redrive() for each in up] == [0 for _ in up]
    for name in names:
        (home,) = store.queue(name).receive(9)
        assert home.value == name.encode()
        home.reject()
        assert store.queue(name).redrive() == 1


def test_a_record_is_no_letter_where_queues_have_their_dead_letters_in_each_other(
    store: kmq.Store,
):
    store.create_queue("a", dead_letter="b")
    store.create_queue("b", dead_letter="a")
    _send(store, "a", b"1")
    for name in ("a", "b", "a"):
        store.queue(name).receive()[0].reject()
    assert (store.queue("b").redrive(), store.queue("a").redrive()) == (0, 1)
    assert (store.queue("b").redrive(), store.queue("a").stats().ready) == (0, 1)


@pytest.mark.parametrize("deleted", ["q", "letters"])
def test_a_queue_that_is_deleted_while_its_dead_letters_move_disturbs_no_other(
    store: kmq.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, deleted: str
):
    for name in ("letters", "q", "other"):
        dead_letter = None if name == "letters" else "letters"
        store.create_queue(name, max_deliveries=1, lock_timeout=30, dead_letter=dead_letter)
        _send(store, name, b"1")
    letters = store.queue("letters")
    for name in ("q", "other"):
        assert store.queue(name).receive()
    clock.pass_seconds(31)
    find, left = dead_letters.dead_letters_of, [deleted]

    def late(log: CommitLog, queue: Queue) -> Queue:
        found = find(log, queue)
        if queue.name == "q" and left:
            store.delete_queue(left.pop())
        return found

    monkeypatch.setattr(dead_letters, "dead_letters_of", late)
    if deleted == "q":
        assert [each.value for each in letters.receive(5)] == [b"1", b"1"]
        assert letters.receive() == []
    else:
        assert store.queue("q").receive() == []
        assert store.queue("other").receive() == []
        assert [each.value for each in store.queue("letters").receive(5)] == [b"1", b"1"]


def test_who_receives_while_another_process_deletes_the_queue_is_told_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with kmq.open(tmp_path / "store") as store, kmq.open(tmp_path / "store") as other:
        store.create_queue("q")
        _send(store, "q", b"1")
        queue = store.queue("q")
        monkeypatch.setattr(
            "kmq_spark.client.queues.queue.look_ahead", lambda *_: other.delete_queue("q")
        )
        with pytest.raises(kmq.NotFoundError, match=r"Queue\[q\]"):
            queue.receive()


def test_a_full_queue_of_dead_letters_keeps_what_does_not_fit_and_holds_nobody_up(
    store: kmq.Store, clock: Clock, caplog: pytest.LogCaptureFixture
):
    store.create_queue("dead", capacity=1)
    store.create_queue("q", dead_letter="dead", max_deliveries=1, lock_timeout=30)
    with store.producer() as producer:
        for n in range(3):
            producer.send_to_queue("q", b"%d" % n)
    queue, dead = store.queue("q"), store.queue("dead")
    assert len(queue.receive(2)) == 2
    clock.pass_seconds(31)
    assert queue.stats().dead == 1
    assert [each.value for each in queue.receive(9)] == [b"2"]
    assert "queue dead is full: 1 of q stay there" in caplog.text
    for n in range(3):
        clock.pass_seconds(31)
        (letter,) = dead.receive()  # which buries others, too
        assert letter.value == b"%d" % n
        letter.ack()


def test_a_full_queue_of_dead_letters_is_warned_of_once_until_all_have_gone_there(
    store: kmq.Store, clock: Clock, caplog: pytest.LogCaptureFixture
):
    store.create_queue("dead", capacity=1)
    store.create_queue("q", dead_letter="dead", max_deliveries=1, lock_timeout=30)
    queue, dead = store.queue("q"), store.queue("dead")
    for times in (1, 2):
        _send(store, "q", b"1", b"2", b"3")
        assert len(queue.receive(3)) == 3
        clock.pass_seconds(31)
        for _ in range(9):
            assert queue.receive() == store.queue("q").receive() == []
        for _ in range(3):
            (letter,) = dead.receive()
            letter.ack()
        assert queue.receive() == []
        assert caplog.text.count("queue dead is full: 2 of q stay there") == times
    assert caplog.text.count("is full") == 2


def test_dead_letters_that_do_not_fit_back_are_free_again_at_once(store: kmq.Store):
    store.create_queue("q", capacity=1)
    with store.producer() as producer:
        producer.send_to_queue("q", b"1").result()
        store.queue("q").receive()[0].reject()
        producer.send_to_queue("q", b"2").result()
    queue = store.queue("q")
    with pytest.raises(kmq.QueueFullError):
        queue.redrive()
    queue.ack(queue.receive())
    assert queue.redrive() == 1


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 500])
def test_as_many_dead_letters_go_back_as_fit_in_their_order(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, at_once: int
):
    monkeypatch.setattr("kmq_spark.client.queues.redriving.MOVED", at_once)
    store.create_queue("q", capacity=3)
    queue = store.queue("q")
    sent = [b"%d" % n for n in range(9)]
    for first in range(0, 9, 3):
        _send(store, "q", *sent[first : first + 3])
        for each in queue.receive(3):
            each.reject()
    _send(store, "q", b"fresh")
    back = list[bytes | None]()
    for moved in (2, 3, 3, 1, 0):
        assert queue.redrive() == moved
        held = queue.receive(9)
        back += [each.value for each in held]
        queue.ack(held)
    assert back == [b"fresh", *sent]
    assert store.queue("q.dlq").stats().ready == 0


def test_dead_letters_of_the_longest_name_are_received_and_go_back(store: kmq.Store):
    name = "q" * 244
    store.create_queue(name)
    _send(store, name, b"1", b"2")
    for each in store.queue(name).receive(2):
        each.reject()
    (letter,) = store.queue(f"{name}.dlq").receive()
    letter.ack()
    assert store.queue(name).redrive() == 1
    with pytest.raises(kmq.InvalidRequestError, match="1 to 244"):
        store.create_queue(f"{name}.dlq2")


def test_a_dead_letter_goes_to_no_queue_that_nobody_could_open(store: kmq.Store):
    name = "q" * 244
    store.create_queue(name)
    with store.producer() as producer:
        producer.send_to_queue(name, b"v").result()
    store.queue(name).receive()[0].reject()
    (letter,) = store.queue(f"{name}.dlq").receive()
    with pytest.raises(kmq.InvalidRequestError, match=r"would have 252 characters.*; ack the"):
        letter.reject()
    letter.nack(0)
    assert [each.value for each in store.queue(f"{name}.dlq").receive()] == [b"v"]
    assert len(store.queues()) == 2
