"""Queues whose records were compacted away or trimmed, before or while somebody gets them."""

from __future__ import annotations

from typing import Any

import pytest

import kmq_spark as kmq
from tests.support.clock import Clock


def _values(deliveries: list[Any]) -> list[bytes]:
    return [each.value for each in deliveries]


def _compacted(store: kmq.Store, **settings: Any) -> kmq.Queue:
    """A queue with ten records of one key, of which compaction leaves the last one."""
    store.create_topic("t", cleanup="compact")
    with store.producer() as producer:
        for n in range(10):
            producer.send("t", b"%d" % n, key=b"same")
    store.create_queue("q", topics=["t"], **settings)
    return store.queue("q")


def test_records_that_compaction_dropped_are_done(store: kmq.Store):
    queue = _compacted(store)
    store.seal()
    store.compact("t")
    assert _values(queue.receive(100)) == [b"9"]
    assert queue.stats().locked == 1


@pytest.mark.parametrize("call", ["receive", "receive_arrow"])
def test_records_that_compaction_dropped_count_as_nobodys(store: kmq.Store, call: str):
    queue = _compacted(store)
    store.seal()
    store.compact("t")
    queue.ack(getattr(queue, call)(100))
    assert queue.stats() == kmq.QueueStats(0, 0, 0, delivered=1, acked=1, dead=0, expired=0)


def test_records_that_compaction_dropped_after_their_last_delivery_hold_nobody_up(
    store: kmq.Store, clock: Clock
):
    queue = _compacted(store, max_deliveries=1, lock_timeout=30)
    assert len(queue.receive(3)) == 3
    store.seal()
    store.compact("t")
    clock.pass_seconds(31)  # their only lock is over
    assert _values(queue.receive(100)) == [b"9"]
    assert queue.stats().ready == 0


def test_retention_says_what_it_takes_from_a_queue(
    store: kmq.Store, caplog: pytest.LogCaptureFixture
):
    store.create_topic("t", retention_bytes=1)
    with store.producer() as producer:
        for values in ([b"0", b"1"], [b"2"]):
            producer.send_batch("t", values).result()
    for name in ("behind", "done"):
        store.create_queue(name, topics=["t"])
    done, behind = store.queue("done"), store.queue("behind")
    done.ack(done.receive(9))
    for _ in range(2):
        store.maintain()
    told = [each.getMessage() for each in caplog.records if "retention" in each.getMessage()]
    assert told == [
        "retention drops records of t-0 below offset 2 that queue behind did not finish"
    ]
    assert _values(behind.receive(9)) == [b"2"]


def test_finding_too_late_that_records_are_gone_is_no_error(
    store: kmq.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    queue = _compacted(store, max_deliveries=None, lock_timeout=30)
    store.seal()
    store.compact("t")
    read = queue._deliveries

    def slowly(*arguments: Any) -> Any:
        found = read(*arguments)
        clock.pass_seconds(31)  # longer than the lock
        return found

    monkeypatch.setattr(queue, "_deliveries", slowly)
    assert _values(queue.receive(100)) == [b"9"]


def test_records_that_were_trimmed_are_gone_from_the_queue(store: kmq.Store):
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    with store.producer() as producer:
        for n in range(10):
            producer.send("t", b"%d" % n)
    queue = store.queue("q")
    held = queue.receive(3)
    store.trim("t", {0: 5})
    with pytest.raises(kmq.LeaseExpiredError):
        held[0].ack()
    assert _values(queue.receive(100)) == [b"5", b"6", b"7", b"8", b"9"]


def test_records_that_are_trimmed_while_they_are_handed_out_are_left_out(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t")
    with store.producer() as producer:
        for n in range(4):
            producer.send("t", b"%d" % n)
    store.create_queue("q", topics=["t"])
    queue = store.queue("q")
    acquire = queue._acquire

    def and_trim(*arguments: Any, **options: Any) -> Any:
        found = acquire(*arguments, **options)
        store.trim("t", {0: 2})
        queue._log.refresh()
        return found

    monkeypatch.setattr(queue, "_acquire", and_trim)
    assert _values(queue.receive(100)) == [b"2", b"3"]


@pytest.mark.parametrize("by_arrow", [False, True])
def test_any_number_of_dropped_records_takes_a_few_commits(store: kmq.Store, by_arrow: bool):
    store.create_topic("t", cleanup="compact")
    with store.producer() as producer:
        producer.send_batch("t", [b"%d" % n for n in range(500)], [b"same"] * 500)
    store.seal()
    store.compact("t")
    store.create_queue("q", topics=["t"])
    queue, before = store.queue("q"), store.log.refresh().lsn
    if by_arrow:
        assert queue.receive_arrow(1)["value"].to_pylist() == [b"499"]
    else:
        assert _values(queue.receive()) == [b"499"]
    assert store.log.refresh().lsn - before < 10
    assert (queue.stats().ready, queue.stats().locked) == (0, 1)


def test_no_table_is_empty_though_the_records_that_were_acquired_were_dropped(store: kmq.Store):
    store.create_topic("t", cleanup="compact")
    with store.producer() as producer:
        for value in (b"1", b"2"):
            producer.send("t", value, key=b"same")
        producer.send("t", b"other", key=b"last").result()
        store.seal()
        store.compact("t")
        store.create_queue("q", topics=["t"])
        queue = store.queue("q")
        assert queue.receive_arrow(1)["value"].to_pylist() == [b"2"]
        assert queue.receive_arrow(9)["value"].to_pylist() == [b"other"]
        assert queue.receive_arrow(9).num_rows == 0
