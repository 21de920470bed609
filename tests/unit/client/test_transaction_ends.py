"""How transactions end: committed, aborted, fenced, closed, forked, or without an answer.

Finds: an older instance that commits beside a newer one, what is stored though it was closed, a
child that takes part in its parent's, and aborts that are told of what is stored.
"""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from kmq_storage import limits
from tests.simulation.queue_mutants import opens_an_epoch_that_is_not_on_disk
from tests.support.failing_disk import FailingDisk, drop_pages
from tests.support.storage import open_log
from tests.unit.client.stored import aborted, values


def test_a_newer_producer_with_the_same_transactional_id_fences_the_older(shop: kmq.Store):
    old = shop.producer(transactional_id="billing")
    old.begin_transaction()
    future = old.send("a", b"old")
    new = shop.producer(transactional_id="billing")
    with pytest.raises(kmq.FencedError, match="opened again"):
        old.commit_transaction()
    aborted(future, kmq.FencedError)
    with new.transaction() as tx:
        tx.send("a", b"new")
    assert values(shop, "a") == [b"new"]


def test_no_transaction_of_the_older_begins_once_it_is_known_to_be_fenced(shop: kmq.Store):
    old = shop.producer(transactional_id="billing")
    old.begin_transaction()
    shop.producer(transactional_id="billing")
    with pytest.raises(kmq.IllegalStateError, match="open already"):
        old.begin_transaction()
    old.abort_transaction()
    for _ in range(2):
        with pytest.raises(kmq.FencedError, match="opened again"):
            old.begin_transaction()
        with pytest.raises(kmq.FencedError), old.transaction():
            raise AssertionError("it began")
    with pytest.raises(kmq.IllegalStateError, match="no transaction is open"):
        old.commit_transaction()
    old.close()
    with pytest.raises(kmq.ClosedError):
        old.begin_transaction()


def test_whom_another_process_fenced_is_told_by_its_first_commit_and_then_at_once(
    shop: kmq.Store, store_url: str
):
    old = shop.producer(transactional_id="billing")
    with open_store(store_url) as elsewhere:
        elsewhere.producer(transactional_id="billing")
        for _ in range(2):
            with pytest.raises(kmq.FencedError, match="opened again"), old.transaction() as tx:
                tx.send("a", b"twice")
        with pytest.raises(kmq.FencedError):
            old.begin_transaction()


def test_the_older_stays_fenced_however_many_others_wrote_since(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "PRODUCERS_REMEMBERED", 3)
    old, new = (shop.producer(transactional_id="billing") for _ in range(2))
    for _ in range(5):
        with shop.producer() as other:
            other.send("a", b"v").result()
    shop.checkpoint()
    with pytest.raises(kmq.FencedError), old.transaction() as tx:
        tx.send("a", b"twice")
    newest = shop.producer(transactional_id="billing")
    with pytest.raises(kmq.FencedError), new.transaction() as tx:
        tx.send("a", b"twice")
    with newest.transaction() as tx:
        tx.send("a", b"once")
    assert values(shop, "a") == [*[b"v"] * 5, b"once"]


def test_the_older_is_fenced_though_its_name_looks_made_up_and_many_others_wrote_since(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "PRODUCERS_REMEMBERED", 3)
    name = "0123456789abcdef" * 2
    old = shop.producer(transactional_id=name)
    for _ in range(5):
        with shop.producer() as other:
            other.send("a", b"v").result()
    new = shop.producer(transactional_id=name)
    with pytest.raises(kmq.FencedError), old.transaction() as tx:
        tx.send("b", b"twice")
    with new.transaction() as tx:
        tx.send("b", b"once")
    assert values(shop, "b") == [b"once"]


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_the_older_is_fenced_though_a_failed_sync_takes_back_what_is_not_on_disk(
    tmp_path: Path, durability: str
):
    """Else both had one epoch, and the older was told that its commit is stored: the newer's is."""
    disk = FailingDisk(tmp_path)
    shop = kmq.open(tmp_path, durability=durability, maintenance=False)
    with shop, closing(open_log(disk)) as log:
        shop.create_topic("a")
        log.sync(log.written_state().lsn)
        disk.after_failed_sync = partial(drop_pages, disk, log._end.cursor.position)
        old = shop.producer(transactional_id="billing")
        disk.failing["sync"] = errno.EIO
        with suppress(kmq.UnavailableError):
            log.sync(log.written_state().lsn)
        new = shop.producer(transactional_id="billing")
        with new.transaction() as tx:
            tx.send("a", b"new")
        with pytest.raises(kmq.FencedError), old.transaction() as tx:
            tx.send("a", b"old")
        assert values(shop, "a") == [b"new"]


def test_that_an_epoch_is_not_on_disk_is_found_when_it_is_planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    opens_an_epoch_that_is_not_on_disk(monkeypatch)
    with pytest.raises(pytest.fail.Exception):
        test_the_older_is_fenced_though_a_failed_sync_takes_back_what_is_not_on_disk(
            tmp_path, "fsync"
        )


def test_closing_aborts(shop: kmq.Store):
    producer = shop.producer()
    producer.send("a", b"before")
    with pytest.raises(kmq.TransactionAbortedError), producer.transaction() as tx:
        future = tx.send("a", b"inside")
        producer.close()
        with pytest.raises(kmq.IllegalStateError):
            tx.send("a", b"after")
    aborted(future, kmq.ClosedError)
    assert values(shop, "a") == [b"before"]


def test_who_ends_a_transaction_of_a_closed_producer_is_told_that_it_is_closed(shop: kmq.Store):
    producer = shop.producer()
    producer.begin_transaction()
    producer.send("a", b"inside")
    producer.close()
    for end in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(kmq.ClosedError, match="the producer is closed"):
            end()


def test_aborting_by_hand_inside_of_the_block_is_no_error(shop: kmq.Store):
    with shop.producer() as producer:
        with producer.transaction() as tx:
            future = tx.send("a", b"v")
            producer.abort_transaction()
        aborted(future)
        with producer.transaction() as tx:
            tx.send("a", b"w")
            producer.commit_transaction()
    assert values(shop, "a") == [b"w"]


def test_a_forked_child_takes_no_part_and_can_go_on_without(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("a")
        with store.producer() as producer:
            producer.begin_transaction()
            future = producer.send("a", b"parent")
            child = os.fork()
            if child == 0:
                os._exit(_child(producer))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            producer.commit_transaction()
            assert future.done()
        assert sorted(value or b"" for value in values(store, "a")) == [b"child", b"parent"]


def _child(producer: kmq.Producer) -> int:
    for call in (lambda: producer.send("a", b"no"), producer.commit_transaction):
        try:
            call()
        except kmq.IllegalStateError as error:
            if "parent" not in str(error):
                return 2
        else:
            return 3
    if producer._transaction is not None and producer._transaction.is_open:
        producer.abort_transaction()
    producer.send("a", b"child").result(10)
    return 0


def test_a_transactional_producer_is_the_parents_in_a_forked_child(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("a")
        with store.producer(transactional_id="tx") as producer:
            producer.send("a", b"before").result(10)
            child = os.fork()
            if child == 0:
                os._exit(_refused(producer))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            producer.send("a", b"after").result(10)
        assert values(store, "a") == [b"before", b"after"]


def _refused(producer: kmq.Producer) -> int:
    calls: list[Callable[[], object]] = [
        lambda: producer.send("a", b"no"),
        lambda: producer.send_batch("a", [b"no"]),
        lambda: producer.send_batch("a", []),
        producer.begin_transaction,
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except kmq.IllegalStateError as error:
            if "parent" not in str(error):
                return 10 + number
        else:
            return 20 + number
    producer.close()
    return 0


def test_its_error_survives_pickling(shop: kmq.Store):
    producer = shop.producer()
    with pytest.raises(kmq.TransactionAbortedError) as raised, producer.transaction() as tx:
        tx.send("nowhere", b"v")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.context) == (str(raised.value), raised.value.context)


# --- when nobody knows --------------------------------------------------------------------------


def _lose_an_answer(log: Any, patch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """The next append is written, its answer is lost, and something happens."""
    append = log.append

    def lossy(units: Any) -> Any:
        append(units)
        patch.undo()
        then()
        raise kmq.CommitOutcomeUnknownError("the answer was lost")

    patch.setattr(log, "append", lossy)


def test_a_commit_whose_answer_was_lost_is_found_and_lands_once(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    with shop.producer() as producer:
        _lose_an_answer(shop.log, monkeypatch, lambda: None)
        with producer.transaction() as tx:
            future = tx.send("a", b"v")
        assert future.result().offset == 0
    assert values(shop, "a") == [b"v"]


def test_an_outcome_that_stays_unknown_is_not_told_as_aborted(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """A newer instance came between: it refuses the retry of what is stored."""
    producer = shop.producer(transactional_id="p")
    _lose_an_answer(shop.log, monkeypatch, lambda: shop.producer(transactional_id="p"))
    tx = producer.begin_transaction()
    future = tx.send("a", b"v")
    with pytest.raises(kmq.CommitOutcomeUnknownError):
        producer.commit_transaction()
    assert isinstance(future.exception(), kmq.CommitOutcomeUnknownError)
    assert values(shop, "a") == [b"v"]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_transaction_whose_retry_its_own_answers_would_refuse_is_told_as_stored(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch, keyed: bool
):
    shop.create_queue("q", topics=["a"])
    queues, queue = shop.keyed_queues("inbox"), shop.queue("q")
    queues.put_batch(["k"], [b"v"])
    with shop.producer() as producer:
        producer.send("a", b"v").result()
        held = queues.receive("k") if keyed else queue.receive()
        _lose_an_answer(shop.log, monkeypatch, lambda: None)
        with producer.transaction() as tx:
            sent = tx.send("b", b"v")
            tx.ack(held)
        assert sent.result().offset == 0
    assert values(shop, "b") == [b"v"]
    assert (queues.lag("k"), queue.stats().acked) == ((0, 0) if keyed else (1, 1))


def test_offsets_of_a_topic_that_was_made_anew_meanwhile_abort_by_its_name(shop: kmq.Store):
    with shop.producer() as producer, shop.consumer("g", topics=["a"]) as consumer:
        producer.send("a", b"v").result()
        assert len(consumer.consume(1)) == 1
        told = r"Topic\[a\] doesn't exist\. It was deleted"
        refused = pytest.raises(kmq.TransactionAbortedError, match=told)
        with refused, producer.transaction() as tx:
            tx.commit_offsets(consumer)
            shop.delete_topic("a")
            shop.create_topic("a")
    assert not shop.describe_group("g").committed
