"""Acknowledging messages of keyed queues in transactions.

Finds: a message that is done without what was made of it, or comes again though that is stored; an
answer that takes back what another receiver did meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark import aio
from kmq_spark.client.keyed.receiving import GroupReceiver, KeyedDelivery
from kmq_storage import limits
from kmq_storage.format.turn_entry import TurnEntry
from tests.support.clock import Clock
from tests.support.failing_disk import FailingDisk, drop_pages
from tests.support.storage import open_log


def _put(queues: kmq.KeyedQueues, name: str, count: int) -> None:
    queues.put_batch([name] * count, [b"%d" % n for n in range(count)])


def test_a_message_is_done_together_with_what_was_made_of_it(
    store: kmq.Store, queues: kmq.KeyedQueues
):
    _put(queues, "a", 3)
    with store.producer() as producer:
        for held in queues.receive("a", 2):
            with producer.transaction() as tx:
                tx.send("inbox", held.value, key="done")
                tx.ack(held)
        assert queues.get("done", 0, 9) == [b"0", b"1"]
        assert queues.lag("a") == 1
        (last,) = queues.receive("a", 9)
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            tx.send("inbox", last.value, key="done")
            tx.ack([last])
            raise ZeroDivisionError
        assert (queues.size("done"), queues.lag("a")) == (2, 1)
        last.nack()
    assert [each.delivery_count for each in queues.receive("a", 9)] == [2]
    made, *_ = store.trace("inbox", 0, 3)
    acked = next(step for step in store.trace("inbox", 0, 0) if step.event == "acked")
    assert made.lsn == acked.lsn


def test_what_is_held_no_more_aborts_the_transaction(
    store: kmq.Store, queues: kmq.KeyedQueues, clock: Clock
):
    _put(queues, "a", 1)
    (held,) = queues.receive("a", lock_timeout=30)
    with store.producer() as producer:
        with pytest.raises(kmq.TransactionAbortedError) as aborted, producer.transaction() as tx:
            tx.send("inbox", held.value, key="done")
            tx.ack(held)
            clock.pass_seconds(31)
        assert isinstance(aborted.value.__cause__, kmq.LeaseExpiredError)
        assert queues.size("done") == 0
        (again,) = queues.receive("a")
        with producer.transaction() as tx:
            tx.ack([again, again])
    assert queues.lag("a") == 0


def _with_others(
    monkeypatch: pytest.MonkeyPatch, others: Sequence[Callable[[], object]]
) -> list[int]:
    """Have one of these done whenever a transaction has read the accounts; how many are left."""
    original, left = GroupReceiver.acknowledging, list(others)

    def acknowledging(receiver: GroupReceiver, deliveries: Any) -> Any:
        unit = original(receiver, deliveries)
        if left:
            left.pop()()
        return unit

    monkeypatch.setattr(GroupReceiver, "acknowledging", acknowledging)
    return left


@pytest.mark.parametrize("memory", [1, limits.TRANSACTION_MEMORY_BYTES])
def test_however_often_others_answer_first_each_answer_counts(
    store: kmq.Store, queues: kmq.KeyedQueues, monkeypatch: pytest.MonkeyPatch, memory: int
):
    _put(queues, "a", 9)
    first, *others = queues.receive("a", 9)
    left = _with_others(monkeypatch, [each.ack for each in others])
    monkeypatch.setattr(limits, "TRANSACTION_MEMORY_BYTES", memory)
    with store.producer() as producer, producer.transaction() as tx:
        tx.send("inbox", b"made", key="done")
        tx.ack(first)
    assert left == []
    assert (queues.lag("a"), queues.get("done", 0, 9)) == (0, [b"made"])


def test_receivers_that_share_a_queue_move_each_message_once(
    store: kmq.Store, queues: kmq.KeyedQueues
):
    _put(queues, "a", 40)

    def move() -> None:
        with store.producer() as producer:
            while held := queues.receive("a", 2):
                with producer.transaction() as tx:
                    for each in held:
                        tx.send("inbox", each.value, key="done")
                    tx.ack(held)

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(move) for _ in range(3)]:
            done.result()
    assert queues.lag("a") == 0
    assert sorted(map(int, queues.get("done", 0, 99))) == [*range(40)]


def test_a_transaction_answers_for_any_queues_and_groups_of_any_handles(store: kmq.Store):
    inboxes, others = store.keyed_queues("inbox"), store.keyed_queues("other")
    for name in ("a", "b"):
        _put(inboxes, name, 2)
        _put(others, name, 1)
    store.create_queue("q")
    with store.producer() as producer:
        producer.send_to_queue("q", b"v").result()
        held: list[kmq.KeyedDelivery | kmq.Delivery] = [*store.queue("q").receive()]
        for name in ("a", "b"):
            held += inboxes.receive(name) + store.keyed_queues("inbox").receive(name)
            held += inboxes.receive(name, group="mail") + others.receive(name)
        with producer.transaction() as tx:
            tx.ack(iter(held))
    left = [queues.lag(name) for queues in (inboxes, others) for name in ("a", "b")]
    assert (left, inboxes.lag("a", group="mail")) == ([0, 0, 0, 0], 1)
    assert store.queue("q").stats().acked == 1
    (turns,) = ([e for e in c.entries if isinstance(e, TurnEntry)] for c in [*store.commits()][-1:])
    assert len(turns) == 6


def test_a_message_of_another_store_is_refused(store: kmq.Store, tmp_path: Path):
    with kmq.open(tmp_path / "elsewhere") as elsewhere, store.producer() as producer:
        queues = elsewhere.keyed_queues("inbox")
        _put(queues, "a", 1)
        (held,) = queues.receive("a")
        with producer.transaction() as tx, pytest.raises(kmq.InvalidRequestError, match="of store"):
            tx.ack(held)
        held.ack()


def test_messages_are_answered_in_transactions_for_asyncio(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as store, store.keyed_queues("inbox") as queues:
            await queues.put_batch(["a"] * 3, [b"1", b"2", b"3"])
            one, *others = await queues.receive("a", 9)
            async with store.producer() as producer, producer.transaction() as tx:
                await tx.send("inbox", one.value, key="done")
                await tx.ack(one)
                await tx.ack(others)
            assert [await queues.lag(name) for name in ("a", "done")] == [0, 1]

    asyncio.run(work())


def _acknowledge_in_a_transaction(store: kmq.Store, held: KeyedDelivery) -> None:
    with store.producer() as producer, producer.transaction() as tx:
        tx.ack(held)


@pytest.mark.parametrize("acknowledge", [lambda _, held: held.ack(), _acknowledge_in_a_transaction])
def test_an_account_that_was_read_before_a_sync_failed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acknowledge: Callable[..., None]
):
    """Else it took back what others did in the commits that came in place of the lost ones."""
    disk = FailingDisk(tmp_path)
    with kmq.open(tmp_path, durability="os", maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        _put(queues, "a", 2)
        first, second = queues.receive("a", 2)
        log = open_log(disk, durable=False)
        log.sync(log.written_state().lsn)
        disk.after_failed_sync = partial(drop_pages, disk, log._end.cursor.position)
        _put(queues, "b", 1)
        _put(queues, "b", 1)
        unit = GroupReceiver._unit

        def with_a_loss(*arguments: Any) -> Any:
            made = unit(*arguments)
            monkeypatch.setattr(GroupReceiver, "_unit", unit)
            disk.failing["sync"] = errno.EIO
            with pytest.raises(kmq.UnavailableError, match="lost commit"):
                log.sync(log.written_state().lsn)
            second.ack()
            return made

        monkeypatch.setattr(GroupReceiver, "_unit", with_a_loss)
        acknowledge(store, first)
        log.close()
        assert queues.lag("a") == 0
