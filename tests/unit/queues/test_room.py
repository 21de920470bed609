"""What takes room in a queue with a capacity: what enters it, and nothing that its filter refuses.

Finds: a producer that is told that a queue is full of records which never enter it, a full queue
that takes more, a loss of records that no receiver is told of.
"""

from __future__ import annotations

import pytest

import kmq_spark as kmq
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.queues import looking


@pytest.fixture
def producer(store: kmq.Store) -> kmq.Producer:
    """One beside a queue of five records with a filter."""
    store.create_topic("t", partitions=2)
    store.create_queue("q", capacity=5)
    store.bind_queue("q", "t", filter="a = 1")
    return store.producer(linger=0)


def _send(producer: kmq.Producer, *numbers: int) -> None:
    for n in numbers:
        producer.send("t", b"v", partition=n % 2, properties={"a": n})
    producer.flush()


@pytest.mark.parametrize("rows", [2, 32_768])
def test_what_a_filter_refuses_takes_no_room_from_a_producer(
    store: kmq.Store, producer: kmq.Producer, monkeypatch: pytest.MonkeyPatch, rows: int
):
    monkeypatch.setattr(looking, "_ROWS", rows)
    _send(producer, *range(20), 1)
    assert store.queue("q").stats().ready == 2
    producer.send_to_queue("q", b"3").result()
    with producer.transaction() as tx:
        tx.send_to_queue("q", b"4")
        tx.send_to_queue("q", b"5")
    _send(producer, *range(2, 20))
    with pytest.raises(kmq.QueueFullError, match="room for 0 of 1"):
        producer.send_to_queue("q", b"6").result()
    assert store.queue("q").stats().ready == 5


def test_what_a_filter_refuses_takes_no_room_from_dead_letters(
    store: kmq.Store, producer: kmq.Producer
):
    producer.send_to_queue("q", b"1").result()
    queue = store.queue("q")
    queue.receive()[0].reject()
    _send(producer, *range(2, 20))
    assert queue.redrive() == 1
    store.create_queue("other", dead_letter="q", max_deliveries=1)
    producer.send_to_queue("other", b"2").result()
    _send(producer, *range(2, 20))
    other = store.queue("other")
    other.receive()[0].nack()
    assert other.receive() == []
    assert [each.value for each in queue.receive(9)] == [b"1", b"2"]


def test_of_what_fills_a_queue_no_more_is_looked_at_than_it_takes(
    store: kmq.Store, producer: kmq.Producer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(looking, "_ROWS", 8)
    _send(producer, *[1] * 100)
    for _ in range(5):
        with pytest.raises(kmq.QueueFullError):
            producer.send_to_queue("q", b"v").result()
    sources = store.log.refresh().queue("q").sources.values()
    assert sum(source.rows.live for source in sources) <= 8


def test_a_loss_is_left_for_a_receiver_to_be_told(store: kmq.Store, producer: kmq.Producer):
    _send(producer, *range(2, 40, 2))
    lsn, topic = store.log.refresh().lsn, store.describe_topic("t")
    gap = GapEntry(topic.topic_id.bytes, 0, 3, 6, 3, 3, lsn, "damaged")
    store.log.commit([Unit((gap,))])
    with pytest.raises(kmq.QueueFullError):
        producer.send_to_queue("q", b"v").result()
    with pytest.raises(kmq.DataLossError, match="offsets 3 to 5"):
        store.queue("q").receive()
