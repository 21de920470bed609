"""Answers for records held ahead whose queue was deleted, or whose topic was unbound, meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.queues import ahead

RECORDS, FAST = 200, 50


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def store(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[kmq.Store]:
    monkeypatch.setattr(ahead, "PATIENCE", 1e6)
    with kmq.open(url, durability="os") as store:
        store.create_topic("t")
        store.create_queue("q", topics=["t"], lock_timeout=3_600)
        with store.producer() as producer:
            for n in range(RECORDS):
                producer.send("t", b"%d" % n)
                producer.send_to_queue("q", b"%d" % n)
        yield store


def _held(store: kmq.Store) -> tuple[kmq.Delivery, kmq.Delivery]:
    """A record of the topic and one that was sent to the queue, which are on one slip."""
    queue = store.queue("q")
    for _ in range(FAST):
        queue.receive()[0].ack()
    found: dict[tuple[object, str | None], kmq.Delivery] = {}
    while True:
        (held,) = queue.receive()
        found[held.hold.notes, held.topic] = held
        both = [found.get((held.hold.notes, topic)) for topic in ("t", None)]
        if held.hold.notes is not None and both[0] is not None and both[1] is not None:
            return both[0], both[1]


def test_what_was_acknowledged_before_its_topic_is_unbound_counts(store: kmq.Store):
    store.create_queue("reader", topics=["t"], lock_timeout=3_600)
    queue = store.queue("reader")
    for _ in range(FAST):
        queue.ack(queue.receive())
    store.unbind_queue("reader", ["t"])
    assert queue.stats().acked == FAST


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_answer_is_refused_once_its_queue_is_deleted(
    store: kmq.Store, url: str, elsewhere: bool
):
    queue = store.queue("q")
    for _ in range(FAST):
        queue.receive()[0].ack()
    (done,), (held,) = queue.receive(), queue.receive()
    done.ack()
    with kmq.open(url, durability="os") as other:
        (other if elsewhere else store).delete_queue("q")
    for _ in range(2):
        with pytest.raises(kmq.NotFoundError, match=r"Queue\[q\] doesn't exist"):
            held.ack()
    with pytest.raises(kmq.LeaseExpiredError, match=r"^queue q: .* comes too late"):
        done.ack()


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(
    "give_up",
    [lambda store: store.unbind_queue("q", ["t"]), lambda store: store.delete_topic("t")],
    ids=["unbound", "deleted"],
)
def test_an_answer_is_refused_once_its_topic_is_given_up_and_others_count(
    store: kmq.Store, url: str, elsewhere: bool, give_up: Callable[[kmq.Store], None]
):
    of_topic, direct = _held(store)
    with kmq.open(url, durability="os") as other:
        give_up(other if elsewhere else store)
    for _ in range(2):
        with pytest.raises(kmq.LeaseExpiredError, match=r"^queue q: .* comes too late"):
            of_topic.ack()
    direct.ack()
    assert store.queue("q").stats().acked == FAST + 1
