"""Records whose senders chose property names of dead letters, and deliveries of somebody else.

Finds: a letter that goes back to a queue in which it never was, and an error that tells of a lock
that ended where a delivery is of another store.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from tests.support.waiting import until
from tests.unit.client.stored import records
from tests.unit.orderly.listening import SUSPEND, Listener, committed, orderly, scripted


def _queues_with_one(store: kmq.Store, properties: dict[str, Any]) -> kmq.Queue:
    """A queue with a record that has these properties, and another one with the same letters."""
    for name in ("q", "other"):
        store.create_queue(name, dead_letter="letters")
    with store.producer() as producer:
        producer.send_to_queue("q", b"v", properties=properties).result()
    return store.queue("q")


@pytest.mark.parametrize("name", ["dead_letter_queue", "dead_letter_home"])
def test_a_letter_goes_back_to_where_it_died_whatever_property_its_sender_gave_it(
    store: kmq.Store, name: str
):
    queue = _queues_with_one(store, {name: "other"})
    queue.receive()[0].reject()
    assert store.queue("other").redrive() == 0
    assert queue.redrive() == 1
    assert queue.receive()[0].value == b"v"


def test_a_record_that_was_passed_on_with_the_properties_of_a_letter_dies_where_it_dies(
    store: kmq.Store,
):
    queue, other = _queues_with_one(store, {"n": 1}), store.queue("other")
    queue.receive()[0].reject("here")
    assert queue.redrive() == 1
    (held,) = queue.receive()
    with store.producer() as producer, producer.transaction() as tx:
        tx.send_to_queue("other", held.value, properties=held.properties)
        tx.ack(held)
    other.receive()[0].reject("there")
    (letter,) = store.queue("letters").receive()
    assert letter.properties["dead_letter_queue"] == "other"
    assert "dead_letter_home" not in letter.properties
    letter.nack(0)
    assert (queue.redrive(), other.redrive()) == (0, 1)
    assert other.receive()[0].value == b"v"


def test_a_copy_of_a_letter_has_no_schedule_but_its_own(store: kmq.Store):
    _queues_with_one(store, {})
    with store.producer() as producer:
        soon = datetime.now(UTC) + timedelta(seconds=60)
        producer.send_to_queue("other", b"w", priority=9, expires_at=soon).result()
        store.queue("other").receive()[0].reject()
        (letter,) = store.queue("letters").receive()
        producer.send_to_queue("q", letter.value, properties=letter.properties).result()
        letter.ack()
    for held in store.queue("q").receive(2):
        held.reject()
    for letter in store.queue("letters").receive(2):
        assert not {"dead_letter_priority", "dead_letter_expires_at"} & letter.properties.keys()


def _facts(letter: kmq.Record) -> set[str]:
    names = {name.removeprefix("dead_letter_") for name in letter.properties}
    return names - {"topic", "partition", "offset", "count", "reason"}


def test_a_letter_tells_of_its_own_death_and_of_no_earlier_one(store: kmq.Store):
    schedule = {"dead_letter_priority": 9, "dead_letter_expires_at": 1}
    earlier = {"n": 1, "dead_letter_home": "other", **schedule}
    queue = _queues_with_one(store, {**earlier, "dead_letter_group": "g"})
    queue.receive()[0].reject()
    (letter,) = store.queue("letters").receive()
    assert _facts(letter) == {"n", "queue"}
    store.create_topic("t")
    with store.producer() as producer:
        properties = {**earlier, **letter.properties}
        producer.send("t", letter.value, properties=properties).result()
    with orderly(store, Listener(scripted(SUSPEND)), max_reconsume_times=0):
        until(lambda: committed(store) == {0: 1})
    (found,) = records(store, "%DLQ%g")
    assert _facts(found) == {"n", "group"}
    assert found.properties["dead_letter_topic"] == "t"


def test_a_record_that_was_sent_among_letters_is_no_letter(store: kmq.Store):
    queue = _queues_with_one(store, {})
    store.create_queue("letters")
    with store.producer() as producer:
        producer.send_to_queue("letters", b"w", properties={"dead_letter_queue": "q"}).result()
    assert queue.redrive() == 0
    assert store.queue("letters").receive()[0].value == b"w"


def test_a_trace_takes_no_record_for_a_letter_that_was_moved_back(store: kmq.Store):
    queue = _queues_with_one(store, {})
    with store.producer() as producer, producer.transaction() as tx:
        tx.ack(queue.receive())
        sent = tx.send_to_queue("q", b"w", properties={"dead_letter_queue": "q"})
    (first, *_) = store.trace("queue:q", 0, sent.result().offset)
    assert "moved_back_from" not in first.facts


def _acknowledge_in_a_transaction(store: kmq.Store, held: Any) -> None:
    with store.producer() as producer, producer.transaction() as tx:
        tx.ack(held)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (
            lambda store, held: store.queue("q").ack(held),
            kmq.LeaseExpiredError,
            "they are of another queue of this name, which was deleted or is in another store",
        ),
        (
            _acknowledge_in_a_transaction,
            kmq.TransactionAbortedError,
            "it was deleted, or received from another store",
        ),
    ],
)
def test_an_answer_to_a_delivery_of_another_store_says_so(
    store: kmq.Store,
    answer: Callable[[kmq.Store, list[kmq.Delivery]], None],
    error: type[kmq.KmqError],
    text: str,
):
    _queues_with_one(store, {})
    with kmq.open(f"memory://{uuid.uuid4().hex}") as elsewhere:
        held = _queues_with_one(elsewhere, {}).receive()
        with pytest.raises(error) as raised:
            answer(store, held)
        assert text in str(raised.value) + str(raised.value.__cause__)
        held[0].ack()


@pytest.mark.parametrize(
    "answer",
    [
        lambda store, held, _: store.queue("q").ack(held),
        lambda store, held, _: store.queue("q").nack(held[0]),
        lambda store, held, _: store.queue("q").reject(held[0]),
        lambda store, held, _: store.queue("q").extend(held[0], 60.0),
        lambda store, held, _: _acknowledge_in_a_transaction(store, held),
        lambda store, _, table: store.queue("q").ack(table),
        lambda store, _, table: _acknowledge_in_a_transaction(store, table),
    ],
    ids=["ack", "nack", "reject", "extend", "transaction", "table", "table in a transaction"],
)
def test_an_answer_to_a_delivery_of_a_store_changes_nothing_in_its_clone(
    tmp_path: Path, answer: Callable[[kmq.Store, list[kmq.Delivery], pa.Table], None]
):
    with kmq.open(tmp_path / "source", maintenance=False) as source:
        queue = _queues_with_one(source, {})
        kmq.clone(tmp_path / "source", tmp_path / "clone")
        with source.producer() as producer:
            producer.send_to_queue("q", b"w").result()
        held, table = queue.receive(), queue.receive_arrow()
        assert (len(held), len(table)) == (1, 1)
        with kmq.open(tmp_path / "clone", maintenance=False) as clone:
            with clone.producer() as producer:
                producer.send_to_queue("q", b"another record of this number").result()
            others = clone.queue("q").receive(2)
            with pytest.raises(kmq.KmqError, match=r"another .*store|doesn't exist in") as raised:
                answer(clone, held, table)
            assert "another" in f"{raised.value} {raised.value.__cause__}"
            assert clone.queue("q").stats().locked == 2
            clone.queue("q").ack(others)
        queue.ack(table)
        held[0].ack()
        assert queue.stats().locked == 0


def test_a_clone_takes_back_what_it_was_made_with_and_nothing_in_place_of_a_later_record(
    tmp_path: Path,
):
    with kmq.open(tmp_path / "source", maintenance=False) as source, source.producer() as producer:
        source.create_queue("q")
        sent = producer.send_to_queue("q", b"before").result()
        kmq.clone(tmp_path / "source", tmp_path / "clone")
        later = producer.send_to_queue("q", b"after").result()
        with kmq.open(tmp_path / "clone", maintenance=False) as clone:
            with clone.producer() as others:
                others.send_to_queue("q", b"another record of this offset").result()
            queue = clone.queue("q")
            assert [queue.recall(later), queue.recall(sent)] == [False, True]
            assert queue.stats().ready == 1
        assert source.queue("q").recall(later)


def test_an_answer_to_a_message_of_a_store_changes_nothing_in_its_clone(tmp_path: Path):
    with kmq.open(tmp_path / "source", maintenance=False) as source:
        inboxes = source.keyed_queues("inboxes")
        inboxes.put_batch(["a"], [b"v"])
        kmq.clone(tmp_path / "source", tmp_path / "clone")
        (held,) = inboxes.receive("a")
        with kmq.open(tmp_path / "clone", maintenance=False) as clone:
            (other,) = clone.keyed_queues("inboxes").receive("a")
            with pytest.raises(kmq.LeaseExpiredError, match="is in another store"):
                clone.keyed_queues("inboxes").ack(held)
            other.ack()
        held.ack()
        assert inboxes.lag("a") == 0
