"""Transactions larger than memory: files that nobody reads before their commit, and limits.

Finds: records out of order, doubled or lost on their way through files, files that stay though
nothing was committed, and limits without a name.
"""

from __future__ import annotations

import weakref
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import limits
from tests.support.storage import collect_all
from tests.unit.client.stored import aborted, lsn, values


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction keeps 100 KB in memory."""
    monkeypatch.setattr(limits, "TRANSACTION_MEMORY_BYTES", 100_000)


@pytest.mark.usefixtures("small_memory")
def test_a_large_transaction_goes_into_files_and_is_one_commit_in_order(shop: kmq.Store):
    with shop.producer() as producer:
        before = lsn(shop)
        with producer.transaction() as tx:
            for first in range(0, 3_000, 30):
                futures = [tx.send("a", b"%d" % n + b"." * 300) for n in range(first, first + 10)]
                tx.send_batch("a", [b"%d" % n for n in range(first + 10, first + 20)])
                column = [b"%d" % n for n in range(first + 20, first + 30)]
                tx.send_arrow("a", pa.table({"value": column}))
                tx.send("b", b"w" * 300)
            assert list(shop.log.files.list("staged"))
            assert lsn(shop) == before
        assert lsn(shop) == before + 1
    found = [int((value or b"").rstrip(b".")) for value in values(shop, "a")]
    assert found == list(range(3_000))
    assert futures[0].result().offset == 2_970
    assert len(values(shop, "b")) == 100
    assert shop.verify(deep=True).ok


def test_what_goes_into_files_at_once_is_one_file_for_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TRANSACTION_MEMORY_BYTES", 9_000_000)  # more than a work's bytes
    with kmq.open(tmp_path, maintenance=False) as store, store.producer() as producer:
        store.create_topic("t", partitions=2)
        with producer.transaction() as tx:
            for number in range(100):
                tx.send("t", bytes(99_000), partition=number % 2)
            assert len(list(store.log.files.list("staged"))) == 2
        assert store.offsets("t") == {0: (0, 50), 1: (0, 50)}
        assert store.verify(deep=True).ok


@pytest.mark.usefixtures("small_memory")
def test_of_records_in_files_nothing_that_was_sent_beside_their_values_stays_in_memory(
    tmp_path: Path,
):
    class Name(str):
        __slots__ = ("__weakref__",)

    def send(tx: kmq.Transaction) -> weakref.ref[Name]:
        name = Name("place")
        tx.send("t", bytes(99_000), headers=[(name, b"v")], timestamp=datetime.now(UTC))
        return weakref.ref(name)

    with kmq.open(tmp_path, maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        with producer.transaction() as tx:
            sent = [send(tx) for _ in range(20)]
            tx.send("t", bytes(99_000))
            assert list(store.log.files.list("staged"))
            assert sent[0]() is None


@pytest.mark.usefixtures("small_memory")
def test_files_of_an_aborted_transaction_are_collected(shop: kmq.Store):
    with shop.producer() as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            future = tx.send_batch("a", [b"v" * 500] * 1_000)
            raise ZeroDivisionError
        aborted(future, ZeroDivisionError)
        producer.send("a", b"v").result(10)
    assert list(shop.log.files.list("staged"))
    shop.checkpoint()
    collect_all(shop.log)
    assert not list(shop.log.files.list("staged"))
    assert values(shop, "a") == [b"v"]


@pytest.mark.usefixtures("small_memory")
def test_one_that_is_refused_on_its_way_into_files_is_told_at_once(shop: kmq.Store):
    with shop.producer() as producer:
        with pytest.raises(kmq.TransactionAbortedError), producer.transaction() as tx:
            first = tx.send("nowhere", b"v")
            tx.send_batch("a", [b"v" * 500] * 1_000)
        aborted(first, kmq.NotFoundError)
    assert values(shop, "a") == []


@pytest.mark.parametrize("memory", [10_000, 10_000_000])
def test_one_of_too_many_bytes_is_aborted_with_the_name_of_the_limit(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch, memory: int
):
    monkeypatch.setattr(limits, "TRANSACTION_MEMORY_BYTES", memory)
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 100_000)
    with shop.producer() as producer:
        aborts = pytest.raises(kmq.TransactionAbortedError, match="TRANSACTION_BYTES_MAX")
        with aborts, producer.transaction() as tx:
            for _ in range(200):
                tx.send_batch("a", [b"v" * 100] * 10)
    assert values(shop, "a") == []


def test_one_that_is_open_for_too_long_is_aborted_with_the_name_of_the_limit(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TRANSACTION_SECONDS_MAX", -1.0)
    with shop.producer() as producer:
        for late in (lambda tx: tx.send("a", b"v"), lambda tx: None):
            aborts = pytest.raises(kmq.TransactionAbortedError, match="TRANSACTION_SECONDS_MAX")
            with aborts, producer.transaction() as tx:
                late(tx)
    assert values(shop, "a") == []


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("made_anew", [True, False])
def test_what_was_deleted_under_a_large_transaction_is_named(shop: kmq.Store, made_anew: bool):
    shop.create_queue("q")
    gone = r"doesn't exist\."
    with shop.producer() as producer:
        refused = pytest.raises(kmq.TransactionAbortedError, match=rf"Topic\[a\] {gone} It was")
        with refused, producer.transaction() as tx:
            tx.send_batch("a", [b"v" * 500] * 1_000)
            shop.delete_topic("a")
            if made_anew:
                shop.create_topic("a")
        refused = pytest.raises(kmq.TransactionAbortedError, match=rf"Queue\[q\] {gone}")
        with refused, producer.transaction() as tx:
            for _ in range(300):
                tx.send_to_queue("q", b"v" * 500)
            shop.delete_queue("q")
            if made_anew:
                shop.create_queue("q")
