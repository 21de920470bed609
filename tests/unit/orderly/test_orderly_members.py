"""Orderly consumers that share a group, lose their place in it, take turns, and end.

Finds: partitions that two listeners have at a time, offsets that a dropped queue commits, records
that come twice at a hand-over, queues that keep a thread to themselves, and closes that hang.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.orderly import reading, runs
from kmq_spark.client.orderly.reader import Reader
from tests.support.waiting import until
from tests.unit.client.stored import lsn
from tests.unit.orderly.listening import (
    COMMIT,
    SUCCESS,
    SUSPEND,
    Gate,
    Listener,
    Shop,
    fill,
    scripted,
    taken_over,
)


def test_members_that_come_and_go_lose_no_record_and_get_none_twice(shop: Shop):
    together = Listener()
    with shop.orderly(together):
        for round_number in range(4):
            with shop.orderly(together):
                fill(shop.store, {0: 10, 1: 10})
                together.hear(20 * (round_number + 2))
    for partition in (0, 1):
        assert together.offsets(partition) == list(range(50))


def test_a_queue_that_was_dropped_commits_nothing_whatever_its_listener_answers(shop: Shop):
    gate = Gate()
    first = Listener(gate)
    with shop.orderly(first) as late, shop.store.consumer("g") as second:
        until(lambda: len(first.calls) == 2)
        with taken_over(late, second):
            before = lsn(shop.store)
        until(lambda: late.process_queues() == {})
        gate.opened.set()
        first.hear(2)
        assert shop.committed() == {}
        assert {e for c in shop.store.commits(before) for e in c.entries if _is_offset(e)} == set()


def test_offsets_of_a_deleted_topic_are_not_committed_for_the_next_of_its_name(
    line: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    commit_with, listener, is_first = Reader.commit_with, Listener(), iter([True])

    def late(reader: Reader, *arguments: Any) -> None:
        if next(is_first, False):
            listener.hear(4)
            line.delete_topic("t")
            line.create_topic("t")
            fill(line, {0: 6})
        commit_with(reader, *arguments)

    monkeypatch.setattr(Reader, "commit_with", late)
    with line.orderly_consumer("g", ["t"], listener):
        until(lambda: listener.answered >= 10)
    assert listener.offsets() == [*range(4), *range(6)]


def _is_offset(entry: Any) -> bool:
    return type(entry).__name__ == "GroupOffsetsEntry"


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("knows", [True, False])
def test_a_dead_letter_of_who_lost_the_partition_is_not_made(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, auto_commit: bool, knows: bool
):
    if not knows:  # its reading thread is late: only the log can refuse it
        monkeypatch.setattr(reading, "drop", lambda state: state)
    goes_on = threading.Event()

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        assert goes_on.wait(30)
        return SUSPEND

    first = Listener(answer)
    with (
        shop.orderly(first, max_reconsume_times=0, auto_commit=auto_commit) as late,
        shop.store.consumer("g") as second,
    ):
        until(lambda: len(first.calls) == 2)
        with taken_over(late, second):
            pass
        until(lambda: late.process_queues() == {})
        goes_on.set()
        first.hear(2)
        assert sum(t.rows for t in shop.store.topics() if t.name == "%DLQ%g") == 0
        assert shop.committed() == {}


def test_what_a_call_returned_of_a_partition_that_came_back_meanwhile_is_read_again(shop: Shop):
    """A call may return what it read before it lost a partition, and goes on from elsewhere."""
    listener = Listener()
    consumer = shop.orderly(listener)
    original = Reader.consume

    def consume(reader: Reader, *arguments: Any, **options: Any) -> list[kmq.Record]:
        found = original(reader, *arguments, **options)
        if not listener.calls and found:
            reading = consumer._reading
            assert reading is not None
            reading._lost({"t": [0]})
            reader.seek("t", 0, 3)
            reading._assigned({"t": [0]})
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "consume", consume)
        with consumer:
            listener.hear(17)
    assert listener.offsets(0) == list(range(3, 10))
    assert listener.offsets(1) == list(range(10))


def test_who_was_stopped_for_long_looks_whose_a_partition_is_before_it_goes_on(shop: Shop):
    """What a process does first that was stopped, and another one has what it had."""
    goes_on = threading.Event()

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        assert goes_on.wait(30)
        return SUCCESS

    listener = Listener(answer)
    with shop.orderly(listener) as late, shop.store.consumer("g") as second:
        until(lambda: len(listener.calls) == 2)
        with taken_over(late, second):
            shop.ahead = 25.0
            goes_on.set()
            listener.hear(2)
            time.sleep(0.2)
            assert len(listener.calls) == 2
    assert len(listener.calls) == 2


def test_a_queue_that_is_busy_for_a_minute_gives_others_a_turn(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runs, "_THREADS_MAX", 1)
    both_wait = threading.Event()

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        assert both_wait.wait(30)
        shop.ahead += 25.0
        return SUCCESS

    listener = Listener(answer)
    with shop.orderly(listener) as consumer:
        until(lambda: all(q.is_scheduled for q in consumer.process_queues()["t"].values()))
        both_wait.set()
        listener.hear(20)
    partitions = [call[0][0] for call in listener.calls]
    first = partitions[0]
    assert partitions[:6] == [first, first, first, 1 - first, 1 - first, 1 - first]
    assert (listener.offsets(0), listener.offsets(1)) == (list(range(10)), list(range(10)))


def test_close_waits_for_the_listener_and_commits_what_it_answered(shop: Shop):
    gate = Gate()
    listener = Listener(gate)
    consumer = shop.orderly(listener)
    consumer.start()
    until(lambda: len(listener.calls) == 2)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    time.sleep(0.1)
    assert closing.is_alive()
    gate.opened.set()
    closing.join(30)
    assert not closing.is_alive()
    assert len(listener.calls) == 2  # nothing more was handed out
    assert shop.committed() == {0: 1, 1: 1}


def test_a_listener_may_close_its_consumer_and_gets_nothing_more_of_that_partition(shop: Shop):
    closed: list[int] = []

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        if records[0].offset == 3:
            consumer.close()
            closed.append(context.partition)
        return SUCCESS

    listener = Listener(answer)
    consumer = shop.orderly(listener)
    consumer.start()
    consumer.join(30)
    assert closed
    assert all(listener.offsets(number) == [0, 1, 2, 3] for number in closed)
    assert shop.committed() == {n: len(seen) for n in (0, 1) if (seen := listener.offsets(n))}


def test_closing_the_store_closes_it_and_commits(tmp_path: Any):
    listener = Listener()
    with kmq.open(tmp_path / "s") as store:
        store.create_topic("t")
        fill(store, {0: 10})
        store.orderly_consumer("g", "t", listener).start()
        listener.hear(10)
    with kmq.open(tmp_path / "s") as store:
        assert store.describe_group("g").committed == {"t": {0: 10}}


def test_a_suspended_queue_does_not_keep_it_from_closing(shop: Shop):
    listener = Listener(lambda records, context: SUSPEND)
    with shop.store.orderly_consumer("g", ["t"], listener, suspend_current_queue_time=30):
        listener.hear(2)
    assert shop.committed() == {}


def test_starting_again_is_no_error_and_a_closed_one_does_not_start(shop: Shop):
    listener = Listener()
    consumer = shop.orderly(listener)
    with pytest.raises(kmq.IllegalStateError, match="not started"):
        consumer.join(0)
    with consumer:
        consumer.start()
        listener.hear(20)
        with pytest.raises(kmq.KmqTimeoutError):
            consumer.join(0.01)
    consumer.close()
    consumer.join(0)
    with pytest.raises(kmq.ClosedError):
        consumer.start()
    assert len(listener.calls) == 20


def test_while_a_query_reads_the_group_alone_it_does_not_start_and_leaves_nothing(shop: Shop):
    from kmq_storage.groups.exclusive import ExclusiveMembership

    query = ExclusiveMembership(shop.store.log, "g", "query", told="a query")
    consumer = shop.orderly(Listener())
    with pytest.raises(kmq.IllegalStateError, match="alone"):
        consumer.start()
    query.leave()
    with consumer:
        until(lambda: shop.committed() == {0: 10, 1: 10})


def test_an_error_of_the_store_is_told_and_it_goes_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    from kmq_spark.client.orderly import reading

    monkeypatch.setattr(reading, "_ERROR_SECONDS", 0.01)
    failing = iter([kmq.UnavailableError("the disk is full")] * 3)
    commit = shop.store.log.commit

    def commit_or_fail(units: Any, **options: Any) -> Any:
        if any(_is_offset(entry) for unit in units for entry in unit.entries):
            for error in failing:
                raise error
        return commit(units, **options)

    monkeypatch.setattr(shop.store.log, "commit", commit_or_fail)
    listener = Listener()
    with shop.orderly(listener):
        until(lambda: shop.committed() == {0: 10, 1: 10})
    assert caplog.text.count("the disk is full") == 3
    assert len(listener.calls) == 20


def test_by_hand_nothing_is_committed_at_a_hand_over_but_what_was_said(shop: Shop):
    first = Listener(scripted(*[COMMIT, COMMIT] + [SUCCESS] * 18))
    with shop.orderly(first, auto_commit=False):
        first.hear(20)
    committed = shop.committed()
    assert sum(committed.values()) <= 4  # the two that it committed, whichever they were
    second = Listener()
    with shop.orderly(second, auto_commit=False):
        second.hear(20 - sum(committed.values()))
    assert {n: second.offsets(n)[0] for n in committed} == committed
