"""Finds a copied queue that hands out other records than its source, or the same in another way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.queues import ahead as queue_ahead
from kmq_storage.copying.topics import copy_topics
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import AlreadyExistsError, InvalidRequestError
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk

LONG = 3600.0


@pytest.fixture
def source(tmp_path: Path) -> Iterator[kmq.Store]:
    """Six records in a topic, which a queue reads."""
    with kmq.open(tmp_path / "source", maintenance=False) as store:
        store.create_topic("orders", partitions=2)
        with store.producer() as producer:
            for n in range(6):
                producer.send("orders", b"%d" % n, partition=n % 2)
        store.create_queue("q", topics=["orders"], lock_timeout=LONG)
        yield store


def _send(store: kmq.Store, queue: str, value: bytes, **facts: object) -> None:
    with store.producer() as producer:
        producer.send_to_queue(queue, value, **facts).result()


def _values(store: kmq.Store, queue: str = "q") -> list[bytes]:
    return sorted(each.value for each in store.queue(queue).receive(100))


def _info(store: kmq.Store, queue: str) -> kmq.QueueInfo:
    return next(each for each in store.queues() if each.name == queue)


def test_what_is_not_finished_is_handed_out_by_the_copy_and_nothing_else(
    source: kmq.Store, target: kmq.Store
):
    _send(source, "q", b"sent")
    receiver = source.queue("q")
    first = receiver.receive(3)
    receiver.ack(first)
    report = copy_topics(source.log, target.log)
    assert (report.topics, report.queues) == (1, 1)
    left = {b"0", b"1", b"2", b"3", b"4", b"5", b"sent"} - {each.value for each in first}
    assert _values(target) == sorted(left)
    assert _info(target, "q").topics == ["orders"]
    assert _info(target, "q").settings == _info(source, "q").settings


def test_a_copy_counts_what_its_source_did(source: kmq.Store, target: kmq.Store):
    receiver = source.queue("q")
    receiver.ack(receiver.receive(2))
    copy_topics(source.log, target.log)
    assert _info(target, "q").stats == _info(source, "q").stats


def test_a_record_that_was_given_back_has_its_deliveries_in_the_copy(
    source: kmq.Store, target: kmq.Store
):
    receiver = source.queue("q")
    (one,) = receiver.receive(1)
    receiver.nack(one, delay=0)
    copy_topics(source.log, target.log)
    counts = {each.value: each.delivery_count for each in target.queue("q").receive(100)}
    assert counts == {b"%d" % n: 2 if b"%d" % n == one.value else 1 for n in range(6)}


def test_a_record_that_is_held_in_the_source_is_held_in_the_copy_as_long(
    source: kmq.Store, target: kmq.Store
):
    (held,) = source.queue("q").receive(1)
    copy_topics(source.log, target.log)
    assert _info(target, "q").stats.locked == 1
    assert held.value not in _values(target)


def test_delays_expiry_and_priorities_hold_in_the_copy(source: kmq.Store, target: kmq.Store):
    source.create_queue("own")
    _send(source, "own", b"later", delay=timedelta(seconds=LONG))
    _send(source, "own", b"usual")
    _send(source, "own", b"first", priority=9)
    _send(source, "own", b"over", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    copy_topics(source.log, target.log)
    assert [each.value for each in target.queue("own").receive(100)] == [b"first", b"usual"]
    assert _info(target, "own").stats.delayed == 1


def test_filters_and_orders_hold_in_the_copy(source: kmq.Store, target: kmq.Store):
    source.create_queue("some", order="key")
    source.bind_queue("some", ["orders"], filter="kind = 'a'")
    with source.producer() as producer:
        for n, kind in enumerate("abab"):
            producer.send("orders", b"k%d" % n, b"key", properties={"kind": kind}, partition=0)
    (one,) = source.queue("some").receive(1)
    copy_topics(source.log, target.log)
    assert _values(target, "some") == []  # somebody has one of the same key
    receiver = source.queue("some")
    receiver.ack(one)
    copy_topics(source.log, target.log)
    assert _values(target, "some") == [b"k2"]


def test_a_later_copy_puts_the_queue_of_then_in_its_place(source: kmq.Store, target: kmq.Store):
    copy_topics(source.log, target.log)
    receiver = source.queue("q")
    receiver.ack(receiver.receive(4))
    _send(source, "q", b"new")
    report = copy_topics(source.log, target.log)
    assert (report.queues, len(_values(target))) == (1, 3)


def test_a_copy_of_what_did_not_change_writes_nothing(source: kmq.Store, target: kmq.Store):
    copy_topics(source.log, target.log)
    before = target.log.refresh().lsn
    assert copy_topics(source.log, target.log).queues == 0
    assert target.log.refresh().lsn == before


def test_a_queue_that_somebody_received_from_in_the_target_stays_as_it_is(
    source: kmq.Store, target: kmq.Store
):
    copy_topics(source.log, target.log)
    receiver = target.queue("q")
    receiver.ack(receiver.receive(6))
    source.queue("q").receive(1)
    with pytest.warns(kmq.KmqWarning, match="left as they are: q"):
        copy_topics(source.log, target.log)
    assert _values(target) == []


def test_another_queue_of_the_same_name_is_not_touched(source: kmq.Store, target: kmq.Store):
    target.create_queue("q")
    with pytest.raises(AlreadyExistsError, match=r"q\b.*exists already"):
        copy_topics(source.log, target.log)


def test_some_topics_are_copied_without_queues(source: kmq.Store, target: kmq.Store):
    assert copy_topics(source.log, target.log, ["orders"]).queues == 0
    assert target.queues() == []


def test_what_was_trimmed_in_the_target_is_not_handed_out_there(
    source: kmq.Store, target: kmq.Store
):
    copy_topics(source.log, target.log)
    target.trim("orders", {0: 3, 1: 1})
    receiver = source.queue("q")
    for each in receiver.receive(6):
        receiver.nack(each, delay=0)
    copy_topics(source.log, target.log)
    assert _values(target) == [b"3", b"5"]


def test_a_copied_queue_is_in_checkpoints_and_survives_a_restart(
    source: kmq.Store, target: kmq.Store, tmp_path: Path
):
    receiver = source.queue("q")
    receiver.ack(receiver.receive(2))
    copy_topics(source.log, target.log)
    expected = _info(target, "q")
    for _ in range(2):
        with kmq.open(tmp_path / "target", maintenance=False) as again:
            assert _info(again, "q") == expected
        target.checkpoint()


def test_what_a_receiver_noted_and_nobody_committed_is_done_in_the_copy(
    target: kmq.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queue_ahead, "PATIENCE", 1e6)  # nobody counts as slow
    with kmq.open(tmp_path / "fast", durability="os", maintenance=False) as source:
        source.create_queue("many", lock_timeout=LONG)
        with source.producer() as producer:
            for n in range(300):
                producer.send_to_queue("many", b"%d" % n)
        receiver = source.queue("many")
        for _ in range(40):
            (held,) = receiver.receive()
            held.ack()
        (queue,) = source.log.refresh().queues
        assert queue.slips, "some are held with a slip"
        assert queue.acked < 40, "some are noted and not committed"
        copy_topics(source.log, target.log)
        assert _info(target, "many").stats.acked == 40


def test_a_queue_that_no_commit_of_the_target_can_tell_is_named(source: kmq.Store, tmp_path: Path):
    source.create_queue("large")
    at = (datetime.now(UTC) + timedelta(seconds=LONG + n * 7919 % 10_000) for n in range(2_000))
    with source.producer() as producer:
        for n, when in enumerate(at):
            producer.send_to_queue("large", b"%d" % n, deliver_at=when)
    disk = LocalDisk(tmp_path / "small")
    identity = open_identity(disk, SYSTEM, create=True, log_file_bytes=16_384)
    with kmq.Store(LocalLog(disk, identity, SYSTEM), maintenance=False) as small:
        with pytest.raises(InvalidRequestError, match="queue large holds or delays more"):
            copy_topics(source.log, small.log)
        assert _values(small) == [b"%d" % n for n in range(6)], "the others are there"
