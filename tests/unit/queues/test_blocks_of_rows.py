"""The blocks that hold a queue's unfinished records: how many there are, and when they are tidied.

Finds: receivers of a queue with priorities that copy all its records for each answer, and blocks of
one record each.
"""

from __future__ import annotations

import random
from unittest.mock import patch

import numpy as np
import pytest

import kmq_spark as kmq
from kmq_storage.log.state.queues import partition_rows
from kmq_storage.log.state.queues import rows as queue_rows
from kmq_storage.log.state.queues.partition_rows import Rows
from kmq_storage.log.state.queues.rows import Block, new_rows

_BLOCK = 16


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few rows, which are tidied soon."""
    monkeypatch.setattr(queue_rows, "_BLOCK", _BLOCK)
    monkeypatch.setattr(partition_rows, "_WASTE", 4)


def test_answers_ahead_of_records_that_nobody_got_do_not_tidy_each_time(store: kmq.Store):
    store.create_queue("q")
    queue = store.queue("q")
    with store.producer() as producer:
        for n in range(200):
            producer.send_to_queue("q", b"%d" % n, priority=4 if n in (0, 199) else 7)
    with patch.object(Rows, "_tidy", autospec=True, side_effect=Rows._tidy) as tidied:
        for each in queue.receive(198):
            each.ack()
    assert tidied.call_count == 0  # what is done stands ahead of the first record: all has to stay
    assert [each.value for each in queue.receive(9)] == [b"0", b"199"]


def test_what_is_done_is_tidied_away_once_the_records_before_it_are(store: kmq.Store):
    chance = random.Random(3)
    store.create_queue("q")
    queue = store.queue("q")
    with store.producer() as producer:
        for n in range(300):
            producer.send_to_queue("q", b"%d" % n, priority=chance.randrange(10))
    for each in queue.receive(300):
        each.ack()
    (stored,) = store.log.refresh().queues
    assert len(stored.sources[stored.log_key].rows.all()) <= 3 * _BLOCK


def test_records_are_not_gone_through_for_a_priority_that_none_of_them_has(store: kmq.Store):
    store.create_queue("q")
    queue = store.queue("q", prefetch=1)
    with store.producer() as producer:
        for n in range(200):
            producer.send_to_queue("q", b"%d" % n, priority=n % 10 if n < 20 else 1)
    queue.ack(queue.receive(20))
    with patch.object(Block, "due", autospec=True, side_effect=Block.due) as gone_through:
        for n in range(10):
            (found,) = queue.receive()
            assert found.value == b"%d" % (22 + n)
    assert gone_through.call_count < 100
    with store.producer() as producer:
        producer.send_to_queue("q", b"first", priority=9).result()
    assert queue.receive()[0].value == b"first"


def test_records_are_not_gone_through_for_a_priority_of_which_receivers_hold_all(store: kmq.Store):
    """Nor for one whose records are all for later."""
    store.create_queue("q")
    queue = store.queue("q", prefetch=1)
    with store.producer() as producer:
        for n in range(320):
            delay = 3600 if n % 2 else None
            producer.send_to_queue("q", b"%d" % n, priority=9 if n % 4 else 1, delay=delay)
    held = queue.receive(80)
    assert {each.value for each in held} == {b"%d" % n for n in range(2, 320, 4)}
    with patch.object(Block, "due", autospec=True, side_effect=Block.due) as gone_through:
        for n in range(10):
            (found,) = queue.receive()
            assert found.value == b"%d" % (4 * n)
    assert gone_through.call_count < 100
    held[70].nack(0)
    assert queue.receive()[0].value == held[70].value


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_put_between_others_one_by_one_make_no_blocks_of_one_row(seed: int):
    offsets = np.arange(0, 800, 2)
    rows = Rows()
    rows.put(new_rows(offsets))
    odd = (offsets + 1).tolist()
    random.Random(seed).shuffle(odd)
    for offset in odd:
        rows.put(new_rows(np.array([offset])))
    assert rows.all()["offset"].tolist() == list(range(800))
    assert len(rows._blocks) <= 3 * 800 // _BLOCK
