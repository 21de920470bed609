"""A store with very many queues.

Finds: work for each queue that all the others pay for, and a queue that misses what concerns it.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import kmq_spark as kmq
from kmq_storage.log.state.queues.queue import Queue

_MANY = 20


def _asked_by(store: kmq.Store, change: str, name: str = "") -> list[str]:
    """The queues that a change asks whether it concerns them, by each copy of the state."""
    with (
        patch.object(Queue, "forget_topic", autospec=True, side_effect=Queue.forget_topic) as gone,
        patch.object(Queue, "trim", autospec=True, side_effect=Queue.trim) as trimmed,
    ):
        getattr(store, change)(*([name] if name else []))
    return [call.args[0].name for call in (*gone.call_args_list, *trimmed.call_args_list)]


def _queues(store: kmq.Store) -> None:
    for number in range(_MANY):
        store.create_topic(f"t{number}")
        store.create_queue(f"q{number}", topics=[f"t{number}"])


def test_deleting_a_queue_asks_no_other_queue(store: kmq.Store):
    _queues(store)
    assert _asked_by(store, "delete_queue", "q7") == []
    assert len(store.queues()) == _MANY - 1


def test_deleting_a_topic_asks_only_the_queues_that_read_it(store: kmq.Store):
    _queues(store)
    store.bind_queue("q3", ["t7"])
    store.unbind_queue("q3", ["t7"])
    asked = set(_asked_by(store, "delete_topic", "t7"))
    assert asked == {"q3", "q7"}  # a queue that was bound before may hold records of it
    assert {each.name: each.topics for each in store.queues()}["q7"] == []


def test_trimming_the_logs_of_queues_asks_no_queue_for_all_others(store: kmq.Store):
    with store.producer() as producer:
        for number in range(_MANY):
            store.create_queue(f"q{number}")
            producer.send_to_queue(f"q{number}", b"a").result()
    for number in range(_MANY):
        with store.queue(f"q{number}") as queue:
            queue.ack(queue.receive())
    store.seal()
    asked = _asked_by(store, "maintain")
    assert set(asked) == {f"q{number}" for number in range(_MANY)}
    assert len(asked) <= 5 * _MANY, asked  # a few copies of the state apply the commits
    assert all(info.stats.acked == 1 for info in store.queues())


def test_a_queue_of_a_checkpoint_loses_the_records_of_a_topic_that_is_trimmed(tmp_path: Path):
    with kmq.open(tmp_path) as store, store.producer() as producer:
        store.create_topic("t")
        store.create_queue("q", topics=["t"])
        producer.send_batch("t", [b"a", b"b", b"c"]).result()
        with store.queue("q") as queue:
            queue.receive(2)
        store.seal()
        store.checkpoint()
    with kmq.open(tmp_path) as store:
        store.trim("t", {0: 1})
        assert store.queues()[0].stats.locked == 1
        store.delete_topic("t")
        stats = store.queues()[0].stats
        assert (stats.locked, stats.ready) == (0, 0)
