"""Receiving from keyed queues: who gets what, for how long, and what an answer changes.

Finds: a message that two have, or nobody gets; one that comes again though it is done, or does not
come again though it is not; groups that share what each should get; a late answer that counts.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.errors import (
    ClosedError,
    CorruptionError,
    IllegalStateError,
    InvalidRequestError,
    LeaseExpiredError,
)
from kmq_storage.format.turn_entry import TurnEntry
from kmq_storage.keyed import account
from kmq_storage.keyed.reading import QueueReader
from kmq_storage.log.binding.binding import Unit
from tests.support.clock import Clock


@pytest.fixture
def queues(store: kmq.Store) -> KeyedQueues:
    """Three messages in one queue, one in another."""
    queues = store.keyed_queues("inbox")
    queues.put_batch(["a", "b", "a", "a"], [b"1", b"x", b"2", b"3"])
    return queues


def _values(deliveries: list[Any]) -> list[bytes]:
    return [each.value for each in deliveries]


def test_the_oldest_message_comes_first_and_nobody_else_gets_it(queues: KeyedQueues):
    (first,) = queues.receive("a")
    assert (first.queue, first.index, first.value) == ("a", 0, b"1")
    assert (first.delivery_count, first.group) == (1, "default")
    assert _values(queues.receive("a", 9)) == [b"2", b"3"]
    assert queues.receive("a") == []
    assert _values(queues.receive(b"b")) == [b"x"]


def test_what_is_acknowledged_is_done_and_what_is_not_comes_again(queues: KeyedQueues):
    first, second, third = queues.receive("a", 3, lock_timeout=1e-6)
    again = queues.receive("a", 3)
    assert [(each.index, each.delivery_count) for each in again] == [(0, 2), (1, 2), (2, 2)]
    queues.ack(again[1])
    again[0].nack()
    assert queues.lag("a") == 2
    (last,) = queues.receive("a", 3)
    assert (last.value, last.delivery_count) == (b"1", 3)
    for late in (first, second, third, again[0]):
        with pytest.raises(LeaseExpiredError, match="not held any more"):
            late.ack()
    queues.ack([last, again[2]])
    assert (queues.lag("a"), queues.receive("a")) == (0, [])


def test_all_or_none_are_acknowledged_over_several_queues(queues: KeyedQueues):
    (late,) = queues.receive("a", lock_timeout=1e-6)
    held = [*queues.receive("b"), *queues.receive("a", 3)]
    with pytest.raises(LeaseExpiredError, match="message 0 of queue 'a' in inbox") as told:
        queues.ack([*held, late])
    named = {"topic": "inbox", "queue": "a", "index": 0, "offset": 0, "group": "default"}
    assert told.value.context == {**named, "delivery_count": 1}
    assert (queues.lag("a"), queues.lag("b")) == (3, 1)
    queues.ack(held)
    queues.ack([])
    assert (queues.lag("a"), queues.lag("b")) == (0, 0)


def test_each_group_gets_every_message(queues: KeyedQueues):
    for group in ("mail", "push"):
        found = queues.receive("a", 9, group=group)
        assert _values(found) == [b"1", b"2", b"3"]
        assert queues.lag("a", group=group) == 3
    queues.ack(found)
    assert [queues.lag("a", group=group) for group in ("mail", "push", "none")] == [3, 0, 3]
    with pytest.raises(InvalidRequestError, match="several groups"):
        queues.ack([found[0], *queues.receive("b", group="mail")])


def test_a_lock_counts_from_when_its_messages_were_read(
    queues: KeyedQueues, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    read = QueueReader.since

    def slow(*arguments: Any) -> Any:
        clock.pass_seconds(50.0)
        return read(*arguments)

    monkeypatch.setattr(QueueReader, "since", slow)
    (held,) = queues.receive("b", lock_timeout=60)
    clock.pass_seconds(59.0)
    held.ack()


def test_a_delay_and_an_extension_move_the_time(queues: KeyedQueues, clock: Clock):
    held, other = queues.receive("a", 2)
    until = held.locked_until
    held.extend(100)
    assert held.locked_until > until
    other.nack(delay=20)
    assert _values(queues.receive("a", 9)) == [b"3"]
    clock.pass_seconds(19.9)
    assert _values(queues.receive("a", 9, timeout=60)) == [b"2"]
    held.ack()
    with pytest.raises(LeaseExpiredError):
        held.extend(1)


def test_who_waits_gets_what_comes(queues: KeyedQueues):
    assert queues.receive("c", timeout=0.01) == []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(queues.receive, "c", timeout=60)
        queues.put("d", b"other").result()
        queues.put("c", b"it").result()
        assert _values(waiting.result()) == [b"it"]


def test_who_waits_when_the_store_is_closed_is_told(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store, ThreadPoolExecutor(1) as pool:
        queues = store.keyed_queues("inbox")
        begun = threading.Event()
        waiting = pool.submit(lambda: (begun.set(), queues.receive("c", timeout=None)))
        begun.wait()
        store.close()
        with pytest.raises(ClosedError):
            waiting.result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_what_a_parent_holds_its_child_does_not_answer(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "a"], [b"1", b"2"])
        (held,) = queues.receive("a")
        child = os.fork()
        if child == 0:
            with suppress(IllegalStateError):
                held.ack()
                os._exit(1)
            (own,) = queues.receive("a")
            own.ack()
            os._exit(int(own.value != b"2"))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert queues.lag("a") == 1
        held.ack()
        assert queues.lag("a") == 0


def test_a_deleted_queue_is_new_to_every_group(queues: KeyedQueues):
    (held,) = queues.receive("a")
    queues.delete("a")
    assert (queues.receive("a"), queues.lag("a")) == ([], 0)
    assert queues.put("a", b"new").result() == 0
    (found,) = queues.receive("a")
    assert (found.value, found.index, found.delivery_count) == (b"new", 0, 1)
    held.ack()
    found.ack()
    assert queues.lag("a") == 0


def test_a_queue_that_is_full_of_dead_messages_gives_new_ones(
    queues: KeyedQueues, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(account, "UNDER_WAY_MAX", 2)
    assert _values(queues.receive("a", 9)) == [b"1", b"2"]
    assert queues.receive("a", 9) == []
    queues.delete("a")
    queues.put("a", b"new").result()
    assert _values(queues.receive("a")) == [b"new"]


def test_a_topic_that_is_made_again_is_new_to_every_group(store: kmq.Store, queues: KeyedQueues):
    queues.ack(queues.receive("a", 3))
    store.delete_topic("inbox")
    queues = store.keyed_queues("inbox")
    queues.put("a", b"new").result()
    assert _values(queues.receive("a")) == [b"new"]


def test_a_group_is_forgotten_with_its_topic(store: kmq.Store, queues: KeyedQueues):
    queues.ack(queues.receive("a", 3, group="mail"))
    store.delete_topic("inbox%mail")
    assert queues.lag("a", group="mail") == 3
    assert _values(queues.receive("a", 3, group="mail")) == [b"1", b"2", b"3"]


def test_what_others_hold_survives_checkpoints_and_restarts(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a"] * 4, [b"1", b"2", b"3", b"4"])
        queues.receive("a")
        queues.ack(queues.receive("a"))
        store.seal()
        store.checkpoint()
        store.collect(grace=0)
        queues.receive("a")
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        assert queues.lag("a") == 3
        assert _values(queues.receive("a", 9)) == [b"4"]


def test_an_account_costs_a_few_bytes_however_often_it_changes(
    store: kmq.Store, queues: KeyedQueues
):
    for _ in range(20):
        for delivery in queues.receive("a", 3):
            delivery.nack()
    store.seal()
    store.compact("inbox%default")
    (info,) = [topic for topic in store.topics() if topic.name == "inbox%default"]
    assert info.rows <= 2
    assert info.bytes < 200


def test_many_threads_of_two_handles_share_an_inbox(tmp_path: Path):
    with kmq.open(tmp_path / "store") as one, kmq.open(tmp_path / "store") as other:
        handles = [store.keyed_queues("inbox") for store in (one, other)]
        handles[0].put_batch(["a"] * 24, [b"%d" % n for n in range(24)])

        def work(number: int) -> list[int]:
            done = []
            while found := handles[number % 2].receive("a", 2):
                handles[number % 2].ack(found)
                done += [each.index for each in found]
            return done

        with ThreadPoolExecutor(4) as pool:
            found = [index for done in pool.map(work, range(4)) for index in done]
        assert sorted(found) == list(range(24))
        assert handles[1].lag("a") == 0


def test_of_two_turns_that_saw_the_same_one_is_refused(store: kmq.Store, queues: KeyedQueues):
    queues.receive("a")
    state = store.log.refresh()
    topic_id, lsn = state.topic("inbox%default").id, state.lsn
    store.log.commit([Unit((TurnEntry(topic_id, 5, lsn),))])
    store.log.commit([Unit((TurnEntry(topic_id, 6, lsn),))])
    with pytest.raises(kmq.errors.ConflictError, match="read again"):
        store.log.commit([Unit((TurnEntry(topic_id, 5, lsn),))])
    store.checkpoint()
    with pytest.raises(kmq.errors.ConflictError):
        store.log.commit([Unit((TurnEntry(topic_id, 6, lsn),))])


def test_queues_and_groups_over_all_inboxes_work(store: kmq.Store, queues: KeyedQueues):
    store.create_queue("workers", topics=["inbox"], order="key")
    with store.queue("workers") as one, store.queue("workers") as other:
        (first,) = one.receive()
        assert (first.key, first.value) == (b"a", b"1")
        store.seal()  # a run has the messages in another order
        (second,) = other.receive(9)
        assert (second.key, second.value) == (b"b", b"x")
        first.ack()
        assert _values(one.receive(9)) == [b"2", b"3"]
    with store.consumer("archive", topics=["inbox"]) as consumer:
        found = consumer.consume(9, timeout=60)
        assert _values(found) == [b"1", b"x", b"2", b"3"]
        consumer.commit()
    (group,) = [each for each in store.groups() if each.name == "archive"]
    assert group.lag == {"inbox": {0: 0}}


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("", 1), {}),
        (("a", 0), {}),
        (("a", 1, -1), {}),
        (("a",), {"group": "no/name"}),
        (("a",), {"group": "g" * 245}),
        (("a",), {"group": ["g"]}),
        (("a",), {"lock_timeout": 0}),
        (("a",), {"lock_timeout": "1"}),
        (("a",), {"lock_timeout": 1e30}),
    ],
    ids=str,
)
def test_bad_input_is_refused(queues: KeyedQueues, arguments: Any, options: Any):
    with pytest.raises(InvalidRequestError):
        queues.receive(*arguments, **options)
    assert queues.lag("a") == 3


def test_a_delay_of_ages_is_refused_and_changes_nothing(queues: KeyedQueues):
    (held,) = queues.receive("a")
    for answer in (held.nack, held.extend):
        with pytest.raises(InvalidRequestError, match="1,000 years"):
            answer(1e30)
    held.ack()
    assert queues.lag("a") == 2


def test_what_another_topic_handed_out_is_refused_and_changes_nothing(
    store: kmq.Store, queues: KeyedQueues
):
    others = store.keyed_queues("others")
    others.put_batch(["a"], [b"other"])
    (held,), (other,) = queues.receive("a"), others.receive("a")
    with pytest.raises(InvalidRequestError, match="one of topic others, not of inbox"):
        queues.ack([held, other])
    for answer in (held, other):
        answer.ack()
    assert (queues.lag("a"), others.lag("a")) == (2, 0)


def test_an_answer_to_a_topic_that_was_deleted_is_too_late(store: kmq.Store, queues: KeyedQueues):
    (old,) = queues.receive("a")
    store.delete_topic("inbox")
    store.keyed_queues("inbox").put("a", b"new").result()
    (new,) = queues.receive("a")
    with pytest.raises(LeaseExpiredError, match="was deleted"):
        old.ack()
    new.ack()


def test_no_two_topics_share_what_a_group_did(store: kmq.Store, queues: KeyedQueues):
    with pytest.raises(InvalidRequestError, match="without %"):
        queues.receive("a", group="x%y")
    store.keyed_queues("inbox%x").put("a", b"x").result()
    assert _values(store.keyed_queues("inbox%x").receive("a", group="y")) == [b"x"]


def test_what_somebody_else_put_into_a_groups_topic_is_told_with_a_way_out(
    store: kmq.Store, queues: KeyedQueues
):
    store.create_topic("inbox%plain")
    foreign = store.keyed_queues("inbox%default")
    foreign.put("a", b"junk").result()
    for call in (queues.receive, queues.lag):
        with pytest.raises(InvalidRequestError, match=r"inbox%plain, which is .* another group"):
            call("a", group="plain")
        with pytest.raises(CorruptionError, match="inbox%default has of queue b'a'"):
            call("a")
    assert _values(queues.receive("b")) == [b"x"]
    foreign.delete("a")
    assert _values(queues.receive("a")) == [b"1"]


@pytest.mark.parametrize("deliveries", [None, 1, [1], "a"])
def test_what_is_no_delivery_is_refused(queues: KeyedQueues, deliveries: Any):
    with pytest.raises(InvalidRequestError, match="what receive gives"):
        queues.ack(deliveries)


def test_what_a_group_did_is_not_trimmed(store: kmq.Store, queues: KeyedQueues):
    queues.ack(queues.receive("a", 2))
    end = store.offsets("inbox%default")[0][1]
    refused = "has what group default did with the queues of inbox"
    with pytest.raises(InvalidRequestError, match=refused):
        store.trim("inbox%default", {0: end})
    for settings in ({"retention": 60.0}, {"retention_bytes": 1}):
        with pytest.raises(InvalidRequestError, match=refused):
            store.alter_topic("inbox%default", **settings)
    store.alter_topic("inbox%default", retention=None)
    store.create_topic("other%topic", retention=60.0)  # of no queues
    store.trim("inbox", {0: 3})
    assert _values(queues.receive("a")) == [b"3"]


def test_one_delivery_may_be_named_twice(queues: KeyedQueues):
    (held,) = queues.receive("a")
    queues.ack([held, held])
    assert queues.lag("a") == 2


@pytest.mark.parametrize("way", ["flush", "close"])
def test_a_callback_of_a_put_that_would_wait_for_others_is_refused(
    store: kmq.Store, queues: KeyedQueues, way: str
):
    told, done = list[BaseException](), threading.Event()

    def call(_: object) -> None:
        try:
            queues.put("c", b"x")
            getattr(store.keyed_queues("inbox") if way == "close" else queues, way)()
        except BaseException as error:
            told.append(error)
        done.set()

    queues.put("a", b"4").add_done_callback(call)
    queues.flush()
    assert done.wait(60)
    assert [type(error) for error in told] == [IllegalStateError]
