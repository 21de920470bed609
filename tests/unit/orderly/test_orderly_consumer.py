"""Orderly consumers over real stores: what the listener gets, and what is committed.

Finds: records out of order, a partition that holds up others, answers that commit too much or too
little, listeners that end their queue, and dead letters that are lost or doubled.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.orderly import listening
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.log.binding.binding import Unit
from tests.support.waiting import until
from tests.unit.orderly.listening import (
    COMMIT,
    ROLLBACK,
    SUCCESS,
    SUSPEND,
    Gate,
    Listener,
    committed,
    fill,
    orderly,
    scripted,
)


def test_each_partition_comes_in_order_once_and_iscommitted(two: kmq.Store):
    listener = Listener()
    with orderly(two, listener):
        listener.hear(8)
    assert (listener.offsets(0), listener.offsets(1)) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert committed(two) == {0: 4, 1: 4}


def test_records_that_come_later_are_heard_and_committed_while_it_runs(line: kmq.Store):
    listener = Listener()
    with orderly(line, listener):
        listener.hear(4)
        fill(line, {0: 3})
        listener.hear(7)
        until(lambda: committed(line) == {0: 7})
    assert listener.offsets() == list(range(7))


def test_a_batch_has_at_most_the_records_that_were_asked_for(line: kmq.Store):
    listener = Listener()
    with orderly(line, listener, consume_batch_max_size=3):
        listener.hear(2)
    assert listener.calls == [[(0, 0), (0, 1), (0, 2)], [(0, 3)]]


def test_the_context_says_which_partition_it_is_and_how_often_each_record_came(line: kmq.Store):
    told: list[Any] = []

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        told.append((context.topic, context.partition, context.auto_commit))
        told.append((len(records), context.reconsume_times))
        return SUSPEND if len(told) < 5 else SUCCESS

    with orderly(line, Listener(answer), consume_batch_max_size=4):
        until(lambda: len(told) == 6)
    assert told[0] == ("t", 0, True)
    assert told[1::2] == [(4, (0, 0, 0, 0)), (4, (1, 1, 1, 1)), (4, (2, 2, 2, 2))]


def test_a_suspended_partition_waits_at_its_head_and_others_go_on(two: kmq.Store):
    """Head-of-line blocking stays in its partition: no later record passes, no other one waits."""
    goes_on = threading.Event()

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        waits = context.partition == 0 and records[0].offset == 1 and not goes_on.is_set()
        return SUSPEND if waits else SUCCESS

    listener = Listener(answer)
    with orderly(two, listener):
        until(lambda: listener.offsets(1) == [0, 1, 2, 3] and listener.offsets(0).count(1) > 2)
        assert set(listener.offsets(0)) == {0, 1}
        goes_on.set()
        until(lambda: listener.offsets(0)[-1] == 3)
    heard = listener.offsets(0)
    assert sorted(heard) == heard
    assert heard.count(2) == heard.count(3) == 1


def test_a_listener_that_takes_its_time_holds_up_its_own_partition_only(two: kmq.Store):
    gate = Gate(0)
    listener = Listener(gate)
    with orderly(two, listener):
        until(lambda: listener.offsets(1) == [0, 1, 2, 3])
        assert listener.offsets(0) == [0]
        gate.opened.set()
        listener.hear(8)


@pytest.mark.parametrize("answer", [COMMIT, ROLLBACK])
def test_with_auto_commit_answers_of_the_other_mode_count_as_success(
    line: kmq.Store, answer: kmq.OrderlyStatus, caplog: pytest.LogCaptureFixture
):
    listener = Listener(scripted(answer))
    with orderly(line, listener):
        listener.hear(4)
    assert listener.offsets() == [0, 1, 2, 3]
    assert committed(line) == {0: 4}
    assert f"{answer.name} counts as SUCCESS" in caplog.text


def _wrong_answers() -> dict[str, Any]:
    return {
        "raises": ValueError("bad"),
        "ends its thread": SystemExit(3),
        "is interrupted": KeyboardInterrupt(),
        "None": None,
        "True": True,
        "a word": "SUCCESS",
    }


@pytest.mark.parametrize("wrong", _wrong_answers())
def test_a_listener_that_fails_or_answers_anything_else_suspends(line: kmq.Store, wrong: str):
    listener = Listener(scripted(SUCCESS, _wrong_answers()[wrong]))
    with orderly(line, listener) as consumer:
        listener.hear(5)
        until(lambda: consumer.process_queues()["t"][0].succeeded == 4)
        assert consumer.process_queues()["t"][0].failed == 1
    assert listener.offsets() == [0, 1, 1, 2, 3]
    assert committed(line) == {0: 4}


def test_a_listener_may_do_with_its_list_what_it_likes(line: kmq.Store):
    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        records.clear()
        return SUSPEND if context.reconsume_times == (0, 0) else SUCCESS

    listener = Listener(answer)
    with orderly(line, listener, consume_batch_max_size=2):
        listener.hear(4)
    assert listener.offsets() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert committed(line) == {0: 4}


def test_a_listener_chooses_how_long_it_is_suspended(line: kmq.Store):
    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        context.suspend_current_queue_time = 0.0
        return SUSPEND if context.reconsume_times == (0,) else SUCCESS

    listener = Listener(answer)
    with orderly(line, listener, suspend_current_queue_time=30.0):
        listener.hear(8)
    assert listener.offsets() == [0, 0, 1, 1, 2, 2, 3, 3]


# --- without auto_commit --------------------------------------------------------------------


def test_without_auto_commit_success_commits_nothing_and_commit_everything_before(line: kmq.Store):
    listener = Listener(scripted(SUCCESS, COMMIT, SUCCESS, SUCCESS))
    with orderly(line, listener, auto_commit=False):
        listener.hear(4)
    assert committed(line) == {0: 2}
    again = Listener()
    with orderly(line, again, auto_commit=False):
        again.hear(2)
    assert again.offsets() == [2, 3]


def test_a_rollback_brings_back_everything_since_the_last_commit(line: kmq.Store):
    listener = Listener(scripted(COMMIT, SUCCESS, SUCCESS, ROLLBACK, SUCCESS, SUCCESS, COMMIT))
    with orderly(line, listener, auto_commit=False):
        listener.hear(7)
    assert listener.offsets() == [0, 1, 2, 3, 1, 2, 3]
    assert committed(line) == {0: 4}


def test_the_record_that_is_rolled_back_again_and_again_is_counted_and_named(
    line: kmq.Store, caplog: pytest.LogCaptureFixture
):
    counted: list[tuple[int, int]] = []

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        counted.append((records[0].offset, context.reconsume_times[0]))
        context.suspend_current_queue_time = 0.01
        return ROLLBACK if records[0].offset == 1 else SUCCESS

    listener = Listener(answer)
    with orderly(line, listener, auto_commit=False, max_reconsume_times=2):
        listener.hear(40)
    assert counted[:40] == [
        (offset, times) for n in range(20) for offset, times in ((0, 0), (1, n))
    ]
    assert caplog.text.count("t-0, offset 1: all since the last commit come again") == 1
    assert "(the listener rolled it back)" in caplog.text


def test_a_listener_that_never_commits_is_told_how_many_records_it_keeps(
    line: kmq.Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(listening, "_KEPT", 4)
    fill(line, {0: 6})
    listener = Listener()
    with orderly(line, listener, auto_commit=False, consume_batch_max_size=3):
        until(lambda: len(listener.offsets()) == 10)
    told = [each.getMessage() for each in caplog.records if "COMMIT" in each.getMessage()]
    assert [text.split()[1] for text in told] in (["6", "9"], ["4", "10"], ["4", "8"], ["6", "10"])


def test_without_auto_commit_a_suspension_brings_back_its_own_records_and_never_commits(
    line: kmq.Store,
):
    listener = Listener(scripted(SUCCESS, SUSPEND, SUCCESS))
    with orderly(line, listener, auto_commit=False, max_reconsume_times=1):
        listener.hear(5)
    assert listener.offsets() == [0, 1, 1, 2, 3]
    assert committed(line) == {}


def test_a_listener_turns_auto_commit_off_for_its_answer(line: kmq.Store):
    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        context.auto_commit = records[0].offset < 2
        return SUCCESS

    listener = Listener(answer)
    with orderly(line, listener):
        listener.hear(4)
    assert committed(line) == {0: 2}


def test_many_records_wait_within_bounds_and_all_of_them_come(store: kmq.Store):
    store.create_topic("t", partitions=2)
    fill(store, {0: 5_000, 1: 100})
    gate = Gate(0)
    listener = Listener(gate)
    with orderly(store, listener, consume_batch_max_size=100) as consumer:
        until(lambda: len(listener.offsets(1)) == 100)
        until(lambda: len(consumer.process_queues()["t"][0].waiting) >= 900)
        fill(store, {1: 10})
        until(lambda: len(listener.offsets(1)) == 110)  # who is not full is read on
        assert len(consumer.process_queues()["t"][0].waiting) <= 1_500
        gate.opened.set()
        until(lambda: len(listener.offsets(0)) == 5_000)
    assert all(first + 1 == then for first, then in pairwise(listener.offsets(0)))
    assert committed(store) == {0: 5_000, 1: 110}


def test_what_it_holds_can_be_looked_at(line: kmq.Store):
    gate = Gate()
    listener = Listener(gate)
    consumer = orderly(line, listener, consume_batch_max_size=2)
    assert consumer.process_queues() == {}
    with consumer:
        until(lambda: listener.calls)
        state = consumer.process_queues()["t"][0]
        assert [each.offset for each in state.consuming] == [0, 1]
        assert [each.offset for each in state.waiting] == [2, 3]
        assert (state.is_called, state.offset, state.uncommitted) == (True, -1, None)
        gate.opened.set()
        listener.hear(2)
    assert consumer.process_queues() == {}


def test_a_record_that_was_trimmed_meanwhile_holds_up_no_other_commit(two: kmq.Store):
    goes_on = threading.Event()

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> kmq.OrderlyStatus:
        assert context.partition == 1 or goes_on.wait(30)
        return SUCCESS if context.partition == 1 or records[0].offset == 0 else SUSPEND

    listener = Listener(answer)
    with orderly(two, listener):
        until(lambda: listener.offsets(0))
        two.trim("t", {0: 3})
        goes_on.set()
        until(lambda: listener.offsets(0).count(1) > 1)
    assert committed(two) == {1: 4}


def test_a_partition_whose_records_were_cut_out_waits_and_says_how_to_go_on(
    two: kmq.Store, caplog: pytest.LogCaptureFixture
):
    place, lsn = (two.describe_topic("t").topic_id.bytes, 0), two.log.refresh().lsn
    two.log.commit([Unit((GapEntry(*place, 1, 3, 2, 2, lsn, "damaged"),))])  # as a repair does
    listener = Listener()
    with orderly(two, listener):
        listener.hear(5)
        until(lambda: "lost records" in caplog.text)
    assert (listener.offsets(0), listener.offsets(1)) == ([0], [0, 1, 2, 3])
    told = "t-0: offsets 1 to 2 were lost (damaged); go on at offset 3. This partition waits until"
    assert told in caplog.text
    assert "then store.set_group_offsets('g', {'t': {0: 3}})" in caplog.text
    two.set_group_offsets("g", {"t": {0: 3}})
    listener = Listener()
    with orderly(two, listener):
        until(lambda: listener.offsets(0) == [3])


def test_a_topic_that_is_deleted_meanwhile_holds_up_no_other_one(store: kmq.Store):
    for topic in ("t", "u"):
        store.create_topic(topic)
        fill(store, {0: 2}, topic=topic)
    gate = Gate("t")
    listener = Listener(gate)
    with store.orderly_consumer("g", ["t", "u"], listener):
        until(lambda: len(listener.calls) == 3)
        store.delete_topic("t")
        gate.opened.set()
        until(lambda: store.describe_group("g").committed == {"u": {0: 2}})
        fill(store, {0: 1}, topic="u")
        until(lambda: store.describe_group("g").committed == {"u": {0: 3}})
