"""Queues whose records were cut out by a repair: told once, and gone on behind."""

from __future__ import annotations

from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.log.binding.binding import Unit
from tests.support.clock import Clock

ROWS, LOST = 12, range(3, 6)
_TOLD = "t-0: offsets 3 to 5 were lost (damaged); queue q goes on behind them, with the next call"
KEPT = [n for n in range(ROWS) if n not in LOST]


def _queue(store: kmq.Store, **settings: Any) -> kmq.Queue:
    filtered = settings.pop("filter", None)
    store.create_topic("t")
    with store.producer() as producer:
        for n in range(ROWS):
            producer.send("t", b"%d" % n, key=b"key %d" % (n % 2), properties={"n": n})
    store.create_queue("q", **settings)
    store.bind_queue("q", ["t"], filter=filtered)
    return store.queue("q")


def _cut_out(store: kmq.Store, lost: range) -> None:
    """As `repair` does it."""
    place = (store.describe_topic("t").topic_id.bytes, 0)
    rows, lsn = len(lost), store.log.refresh().lsn
    gap = GapEntry(*place, lost.start, lost.stop, rows, rows, lsn, "damaged")
    store.log.commit([Unit((gap,))])


def _received(queue: kmq.Queue, most: int) -> tuple[list[int], list[str]]:
    """The offsets of what can be had, acknowledged, and the errors on the way."""
    offsets, errors = list[int](), list[str]()
    while True:
        try:
            found = queue.receive(most)
        except kmq.DataLossError as error:
            errors.append(error.message)
            continue
        if not found:
            return offsets, errors
        offsets += [each.offset for each in found]
        queue.ack(found)


@pytest.mark.parametrize("most", [1, 2, 100])
@pytest.mark.parametrize(
    "settings",
    [{}, {"order": "key"}, {"order": "strict"}, {"filter": "n >= 0"}],
    ids=["plain", "key", "strict", "filter"],
)
def test_what_was_cut_out_is_told_once_and_all_else_is_handed_out(
    store: kmq.Store, settings: dict[str, Any], most: int
):
    queue = _queue(store, **settings)
    _cut_out(store, LOST)
    offsets, errors = _received(queue, most)
    assert sorted(offsets) == KEPT
    assert errors == [_TOLD]
    assert queue.stats().ready == queue.stats().locked == 0


@pytest.mark.parametrize("most", [1, 100, 10**12])
@pytest.mark.parametrize(
    "settings",
    [{}, {"order": "key"}, {"order": "strict"}, {"filter": "n >= 0"}],
    ids=["plain", "key", "strict", "filter"],
)
def test_a_gap_of_more_offsets_than_memory_has_room_for_is_passed_as_any_other(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], most: int
):
    monkeypatch.setattr(limits, "RECEIVED_MAX", 1_000)
    queue = _queue(store, **settings)
    end = 10**13  # as many as some thousand lost commits may have given out
    topic_id, lsn = store.describe_topic("t").topic_id.bytes, store.log.refresh().lsn
    store.log.commit([Unit((GapEntry(topic_id, 0, ROWS, end, 0, 0, lsn, "damaged"),))])
    with store.producer() as producer:
        producer.send("t", b"new", key=b"key 0", properties={"n": ROWS})
    offsets, errors = _received(queue, most)
    assert sorted(offsets) == [*range(ROWS), end]
    assert len(errors) == 1
    assert queue.stats().ready == queue.stats().locked == 0


@pytest.mark.parametrize("most", [1, 100])
@pytest.mark.parametrize(
    "settings",
    [{}, {"order": "key"}, {"order": "strict"}, {"filter": "n >= 0"}],
    ids=["plain", "key", "strict", "filter"],
)
def test_what_is_cut_out_while_it_is_held_is_told_once_to_who_gets_it_next(
    store: kmq.Store, clock: Clock, settings: dict[str, Any], most: int
):
    queue = _queue(store, **settings)
    queue.receive(LOST.stop - 1)
    _cut_out(store, LOST)
    clock.pass_seconds(31)
    offsets, errors = _received(queue, most)
    assert (sorted(offsets), errors) == (KEPT, [_TOLD])


def test_what_is_cut_out_is_told_once_though_some_of_it_failed_or_comes_later(
    store: kmq.Store, clock: Clock
):
    store.create_queue("q", backoff=(60,))
    queue = store.queue("q")
    with store.producer() as producer:
        for n in range(ROWS):
            producer.send_to_queue("q", b"%d" % n, delay=60 if n % 2 else None)
    for each in queue.receive(3):
        each.nack()
    place = (store.log.state.queue("q").id, 0)
    store.log.commit([Unit((GapEntry(*place, 0, 6, 6, 6, store.log.state.lsn, "damaged"),))])
    clock.pass_seconds(61)
    offsets, errors = _received(queue, 1)
    assert (sorted(offsets), len(errors)) == ([*range(6, ROWS)], 1)


def test_what_is_cut_out_is_told_once_though_some_was_delayed_or_given_back(
    store: kmq.Store, clock: Clock
):
    store.create_queue("q")
    queue = store.queue("q")
    with store.producer() as producer:
        for n in range(ROWS):
            producer.send_to_queue("q", b"%d" % n, delay=60 if n in (1, 6) else None)
    clock.pass_seconds(61)
    queue._give_back(queue.receive(4))
    place = (store.log.state.queue("q").id, 0)
    store.log.commit([Unit((GapEntry(*place, 0, 10, 10, 10, store.log.state.lsn, "damaged"),))])
    offsets, errors = _received(queue, 1)
    assert (sorted(offsets), len(errors)) == ([10, 11], 1)


def test_who_looked_at_a_part_of_what_is_cut_out_then_is_told_once(
    store: kmq.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kmq_storage.queues.looking._ROWS", 4)
    queue = _queue(store, order="key")
    queue.receive()
    _cut_out(store, LOST)
    clock.pass_seconds(31)
    offsets, errors = _received(queue, 1)
    assert (sorted(offsets), errors) == (KEPT, [_TOLD])


def test_what_is_cut_out_after_its_last_delivery_holds_no_dead_letter_up(
    store: kmq.Store, clock: Clock
):
    queue = _queue(store, max_deliveries=1)
    queue.receive(LOST.stop)
    _cut_out(store, LOST)
    clock.pass_seconds(31)
    assert _received(queue, 100) == (KEPT[LOST.start :], [])
    assert [each.value for each in store.queue("q.dlq").receive(100)] == [b"0", b"1", b"2"]


def test_it_is_the_same_for_tables(store: kmq.Store):
    queue = _queue(store)
    _cut_out(store, LOST)
    with pytest.raises(kmq.DataLossError, match="offsets 3 to 5"):
        queue.receive_arrow()
    table = queue.receive_arrow()
    assert table is not None
    assert sorted(table["offset"].to_pylist()) == KEPT


def test_who_takes_record_after_record_is_told_once_of_a_long_gap(tmp_path: Any):
    with kmq.open(tmp_path, durability="os") as store:
        queue = _queue(store)
        _cut_out(store, range(ROWS, ROWS + 100_000))  # as behind a lost end of the log
        with store.producer() as producer:
            producer.send("t", b"behind").result(10)
        offsets, errors = _received(queue, 1)
        assert (offsets, len(errors)) == ([*range(ROWS), ROWS + 100_000], 1)


def test_what_is_there_is_counted_though_something_was_cut_out(store: kmq.Store):
    queue = _queue(store, filter="n >= 0")
    _cut_out(store, LOST)
    assert queue.stats().ready == len(KEPT)


def test_who_meets_several_gaps_at_once_is_told_of_each(store: kmq.Store):
    queue = _queue(store)
    _cut_out(store, LOST)
    _cut_out(store, range(8, 10))
    offsets, errors = _received(queue, 100)
    assert sorted(offsets) == [n for n in KEPT if n not in (8, 9)]
    (told,) = errors
    assert "offsets 3 to 5" in told
    assert "offsets 8 to 9" in told


def test_dead_letters_that_were_lost_are_passed_over_with_a_warning_and_held_by_nobody(
    store: kmq.Store, caplog: pytest.LogCaptureFixture
):
    queue = _queue(store, max_deliveries=1)
    for each in queue.receive(ROWS):
        each.reject()
    state = store.log.refresh()
    place, count = (state.queue("q.dlq").id, 0), len(LOST)
    gap = GapEntry(*place, LOST.start, LOST.stop, count, count, state.lsn, "damaged")
    store.log.commit([Unit((gap,))])
    assert queue.redrive() == len(KEPT)
    assert [each.value for each in queue.receive(ROWS)] == [b"%d" % n for n in KEPT]
    letters = store.queue("q.dlq").stats()
    assert (letters.ready, letters.locked) == (0, 0)
    assert caplog.text.count("offsets 3 to 5 were lost") == 1
