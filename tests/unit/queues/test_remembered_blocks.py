"""What others have to wait for, and what expired: remembered by blocks, and as found anew.

Finds: keys that wait though nobody holds them any more, keys in two hands, records that expired
and count, and receivers that go through all that is held or delayed for each record.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import kmq_spark as kmq
from kmq_storage.log.state.queues import rows as queue_rows
from kmq_storage.log.state.queues.busy import Busy
from kmq_storage.log.state.queues.partition_rows import Rows
from kmq_storage.log.state.queues.rows import (
    FREE,
    LOCKED,
    NEVER,
    WAITING,
    Block,
    are_over,
    new_rows,
)

_MOST = 3


def _found_anew(rows: Rows, now: int) -> list[int]:
    return sorted(rows.all()["key"][queue_rows._are_busy(rows.all(), now, _MOST)].tolist())


def _check_waiting(rows: Rows, now: int, chance: random.Random) -> None:
    """What waits by what some receiver noted, does so by what is due now."""
    for block in rows._blocks:
        taken = np.unique(np.array([chance.randrange(9) for _ in range(30)], np.uint64))
        due = set(block.due(now)["key"].tolist())
        if block.waits(now, Busy([taken])):
            assert due <= set(taken.tolist()) - {0}
        if not chance.randrange(4):
            block.note_waiting(block.changes, now, block.due(now)["key"])
            assert block.waits(now, Busy([np.arange(1, 9, dtype=np.uint64)])) == (0 not in due)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_remembered_of_blocks_is_what_is_found_anew(
    monkeypatch: pytest.MonkeyPatch, seed: int
):
    monkeypatch.setattr(queue_rows, "_BLOCK", 8)
    chance, rows, end = random.Random(seed), Rows(), 0
    for _ in range(500):
        first = chance.randrange(end + 1)
        span = first, first + chance.randint(1, 4)
        match chance.randrange(6):
            case 0 if end < 200:
                new = new_rows(np.arange(end, end + 3))
                new["expires"] = chance.choice((NEVER, chance.randrange(200)))
                new["priority"] = chance.randrange(10)
                rows.put(new)
                end += 3
            case 1:
                at, state = chance.randrange(200), chance.choice((FREE, LOCKED, WAITING))
                rows.change(*span, at=at, state=state, count=chance.randrange(5))
            case 2:
                rows.finish(*span, below=chance.randrange(end + 1))
            case 3:
                covered = len(rows.offsets(*span))
                keys = [chance.randrange(9) for _ in range(covered)]
                rows.set_keys(*span, np.array(keys, np.uint64))
        now = chance.randrange(200)  # a clock may go back
        busy = [key for keys in rows.busy(now, _MOST) for key in keys.tolist()]
        assert sorted(busy) == _found_anew(rows, now)
        _check_waiting(rows, now, chance)
        for block in rows._blocks:
            due = set(block.due(now)["priority"].tolist())
            assert {each for each in range(10) if block.has_due(each, now)} == due
        over = rows.all()["offset"][are_over(rows.all(), now)]
        assert rows.expired(now).tolist() == over.tolist()


@pytest.mark.parametrize(
    ("order", "what"), [("key", "_are_busy"), ("strict", "_are_busy"), ("none", "are_over")]
)
def test_what_is_held_or_delayed_is_not_gone_through_for_each_record(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, order: str, what: str
):
    monkeypatch.setattr(queue_rows, "_BLOCK", 16)
    looked, finds = list[int](), getattr(queue_rows, what)

    def counted(rows: queue_rows.Array, *facts: int) -> queue_rows.Array:
        looked.append(len(rows))
        found: queue_rows.Array = finds(rows, *facts)
        return found

    monkeypatch.setattr(queue_rows, what, counted)
    store.create_queue("q", order=order)
    queue = store.queue("q", prefetch=1)
    later = datetime.now(UTC) + timedelta(hours=2)
    with store.producer() as producer:
        for n in range(400):
            key = b"%d" % n
            producer.send_to_queue("q", b"later", key=key, delay=3600, expires_at=later)
        for n in range(20):
            producer.send_to_queue("q", b"now", key=b"now%d" % n)
    queue.receive()[0].ack()
    looked.clear()
    for _ in range(10):
        queue.receive()[0].ack()
    assert sum(looked) < 10 * 100


def test_records_that_wait_for_one_of_their_key_are_not_gone_through_for_each_record_of_others(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queue_rows, "_BLOCK", 16)
    looked, due = list[int](), Block.due

    def counted(block: Block, now: int) -> queue_rows.Array:
        looked.append(block.size)
        return due(block, now)

    monkeypatch.setattr(Block, "due", counted)
    store.create_queue("q", order="key")
    with store.producer() as producer:
        for n in range(420):
            key = b"hot" if n < 400 else b"%d" % n
            producer.send_to_queue("q", b"v", key=key)
    queue = store.queue("q", prefetch=1)
    held = queue.receive() + queue.receive()
    assert [each.key for each in held] == [b"hot", b"400"]
    looked.clear()
    for n in range(401, 411):
        (got,) = queue.receive()
        assert got.key == b"%d" % n
    assert sum(looked) < 10 * 100
    held[0].ack()
    assert [each.key for each in queue.receive()] == [b"hot"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("most", [1, 5, 64, 1_000])
def test_the_first_keys_that_wait_for_nobody_are_found_whichever_way_is_shorter(
    seed: int, most: int
):
    chance = np.random.default_rng(seed)
    blocks = [np.sort(chance.integers(0, 300, size, np.uint64)) for size in (0, 90, 1, 40)]
    taken = {int(key) for keys in blocks for key in keys} - {0}
    for size in (0, 1, 64, 65, 500):
        keys = chance.integers(0, 300, size, np.uint64)
        free = [place for place, key in enumerate(keys.tolist()) if key not in taken]
        assert Busy(blocks).first_free(keys, most).tolist() == free[:most]


def test_who_wants_one_record_does_not_put_in_order_what_others_hold(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queue_rows, "_BLOCK", 16)
    store.create_queue("q", order="key")
    with store.producer() as producer:
        for n in range(400):
            producer.send_to_queue("q", b"v", key=b"%d" % n)
    queue = store.queue("q", prefetch=1)
    assert len(queue.receive(300)) == 300
    monkeypatch.delattr(Busy, "_in_order")
    for _ in range(100):
        queue.receive()[0].ack()
    assert queue.receive() == []
