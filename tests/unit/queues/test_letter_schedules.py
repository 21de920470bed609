"""Dead letters of records with a priority or a time of expiry, and what comes back of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.model import to_datetime
from tests.support.clock import Clock


def _send(store: kmq.Store, queue: str, value: bytes, **facts: Any) -> None:
    with store.producer() as producer:
        producer.send_to_queue(queue, value, **facts)


def _values(queue: kmq.Queue) -> list[Any]:
    return [each.value for each in queue.receive(9)]


def _soon(store: kmq.Store) -> Any:
    return to_datetime(store.log.now_us()) + timedelta(seconds=60)


def test_a_record_comes_back_with_its_priority(store: kmq.Store):
    store.create_queue("q")
    queue = store.queue("q")
    for value, priority in ((b"low", 0), (b"usual", 4), (b"urgent", 9)):
        _send(store, "q", value, priority=priority)
    for held in queue.receive(9):
        held.reject("bank down")
    _send(store, "q", b"other", priority=5)
    for _ in range(2):  # and when it died again
        letters = store.queue("q.dlq").receive(9)
        said = {each.value: each.properties.get("dead_letter_priority") for each in letters}
        assert said == {b"low": 0, b"usual": None, b"urgent": 9}
        for each in letters:
            each.nack(0)
        assert queue.redrive() == 3
        back = queue.receive(9)
        assert [each.value for each in back] == [b"urgent", b"other", b"usual", b"low"]
        for each in back:
            each.nack(0) if each.value == b"other" else each.reject()


def test_a_letter_stays_when_its_record_expires_which_then_is_not_delivered_again(
    store: kmq.Store, clock: Clock
):
    store.create_queue("q", max_deliveries=1)
    queue = store.queue("q")
    _send(store, "q", b"offer", expires_at=_soon(store))
    queue.receive()[0].nack()
    queue.receive()
    assert queue.redrive() == 1
    queue.receive()[0].nack()
    clock.pass_seconds(61)
    (letter,) = store.queue("q.dlq").receive()
    assert letter.value == b"offer"
    letter.nack(0)
    assert queue.redrive() == 1
    assert _values(queue) == []
    assert queue.stats().expired == 1


def test_a_letter_that_died_two_levels_deep_has_its_schedule_again_at_home(store: kmq.Store):
    store.create_queue("q")
    queue, expires = store.queue("q"), _soon(store)
    _send(store, "q", b"1", priority=9, expires_at=expires)
    queue.receive()[0].reject()
    store.queue("q.dlq").receive()[0].reject()
    assert store.queue("q.dlq").redrive() == 1
    (row,) = store.queue("q.dlq").state().to_pylist()
    assert (row["priority"], row["expires_at"]) == (4, None)
    assert queue.redrive() == 1
    (row,) = queue.state().to_pylist()
    assert (row["priority"], row["expires_at"]) == (9, expires)


@pytest.mark.parametrize("priority", ["9", 10, -1, True, 2.0])
def test_a_false_priority_or_expiry_of_another_program_is_passed_over(
    store: kmq.Store, priority: Any
):
    store.create_queue("q")
    store.create_queue("q.dlq")
    facts = {"queue": "q", "offset": 0, "count": 1, "reason": "", "priority": priority}
    facts = {f"dead_letter_{name}": value for name, value in facts.items()}
    _send(store, "q.dlq", b"1", properties={**facts, "dead_letter_expires_at": -(2**62)})
    assert store.queue("q").redrive() == 1
    (row,) = store.queue("q").state().to_pylist()
    assert (row["priority"], row["expires_at"]) == (4, None)


def test_a_priority_breaks_no_order_of_another_queue_with_the_name(store: kmq.Store):
    store.create_queue("q")
    _send(store, "q", b"1", priority=9)
    store.queue("q").receive()[0].reject()
    store.delete_queue("q")
    store.create_queue("q", order="key")
    _send(store, "q", b"2")
    assert store.queue("q").redrive() == 1
    assert _values(store.queue("q")) == [b"2", b"1"]
