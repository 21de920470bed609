"""What was looked at of a topic before a queue left it says nothing of what it reads later.

Finds: records that a former filter let in, and records from before the new beginning.
"""

from __future__ import annotations

import pytest

import kmq_spark as kmq
from kmq_storage import looking
from kmq_storage.errors import ConflictError
from kmq_storage.format.queue_entries import RECALL, AnswerEntry, Run
from kmq_storage.log.binding import Unit


@pytest.mark.parametrize(("start", "expected"), [("earliest", [b"2"]), ("latest", [])])
def test_a_look_is_refused_when_the_topic_is_unbound_meanwhile(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, start: str, expected: list[bytes]
):
    store.create_topic("t")
    store.create_queue("q")
    store.bind_queue("q", ["t"], filter="n = 1")
    with store.producer() as producer:
        for n in (1, 2):
            producer.send("t", b"%d" % n, properties={"n": n}).result()
    original = looking._entering

    def entering(*args):
        monkeypatch.setattr(looking, "_entering", original)
        store.unbind_queue("q", ["t"])
        store.bind_queue("q", ["t"], start=start, filter="n = 2")
        return found

    found = original(
        store.log,
        store.queue("q")._reader,
        store.log.state.queues.named("q"),
        (store.log.state.topic("t").id, 0),
        (0, 2),
    )
    monkeypatch.setattr(looking, "_entering", entering)
    assert [each.value for each in store.queue("q").receive(9)] == expected


def test_what_is_lost_of_a_topic_that_is_unbound_meanwhile_is_finished_for_nobody(
    store: kmq.Store,
):
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    with store.producer() as producer:
        producer.send("t", b"v").result()
    queue = store.log.refresh().queues.named("q")
    lost = Run(store.log.state.topic("t").id, 0, 0, 1, 0)
    store.unbind_queue("q", ["t"])
    with pytest.raises(ConflictError):
        store.log.commit([Unit((AnswerEntry(queue.id, RECALL, 0, 0, (lost,)),))])
    store.bind_queue("q", ["t"])
    with pytest.raises(ConflictError):
        store.log.commit([Unit((AnswerEntry(queue.id, RECALL, 0, 0, (lost,)),))])
    assert len(store.queue("q").receive(9)) == 1
