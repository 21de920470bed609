"""Ctrl-C, a cancelled task and a close at any moment: each record comes once to whoever stays.

Finds records that are passed over, doubled or committed because a call had taken them when it was
interrupted; locks that stay taken; a close that waits for itself.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client import compiled
from kmq_spark.client.consuming.consumer import Consumer
from kmq_storage.log.disk.written_end import WrittenEnd
from tests.support.handlers import on_usr1
from tests.support.interruption import Interruption

Take = Callable[[Consumer], list[tuple[int, int]]]


def _poll(consumer: Consumer) -> list[tuple[int, int]]:
    record = consumer.poll()
    return [(record.partition, record.offset)] if record else []


def _consume(consumer: Consumer) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in consumer.consume(5, timeout=0)]


def _consume_arrow(consumer: Consumer) -> list[tuple[int, int]]:
    table = consumer.consume_arrow(5, timeout=0)
    if table is None:
        return []
    return list(zip(*(table[name].to_pylist() for name in ("partition", "offset")), strict=True))


TAKES = [_poll, _consume, _consume_arrow]
WANTED = [(partition, offset) for partition in range(2) for offset in range(8)]


@pytest.fixture
def shop() -> Iterator[kmq.Store]:
    """Topic `t` with two partitions of eight records, in commits of four."""
    with kmq.open(f"memory://{uuid.uuid4().hex}", maintenance=False) as store:
        store.create_topic("t", partitions=2)
        with store.producer() as producer:
            for partition in (0, 1, 0, 1):
                producer.send_batch("t", [b"v"] * 4, partition=partition).result(10)
        yield store


def _rest(consumer: Consumer, take: Take) -> Iterator[tuple[int, int]]:
    while found := take(consumer):
        yield from found


@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("calls", [0, 1, 4])
def test_interrupted_anywhere_each_record_comes_once(shop: kmq.Store, take: Take, calls: int):
    """The call after `calls` others is interrupted, at each place that it has."""
    at, interrupted = 1, True
    while interrupted:
        interrupted = False
        with shop.consumer(topics=["t"]) as consumer:
            found = [place for _ in range(calls) for place in take(consumer)]
            try:
                with Interruption(at):
                    some = take(consumer)
                found += some
            except KeyboardInterrupt:
                interrupted = True
            before = consumer.position()["t"]
            assert sum(before.values()) == len(found), at
            found += _rest(consumer, take)
        assert sorted(found) == WANTED, at
        at += 1
    assert at > 3


@pytest.mark.parametrize("take", TAKES)
def test_what_an_interrupted_call_took_is_not_committed(shop: kmq.Store, take: Take):
    for at in range(1, 400, 7):
        consumer = shop.consumer(f"g{at}", topics=["t"], auto_commit=True)
        found = []
        with suppress(KeyboardInterrupt), Interruption(at):
            found = take(consumer)
        consumer.close()
        committed = shop.describe_group(f"g{at}").committed.get("t", {})
        assert sum(committed.values()) == len(found), at


@pytest.mark.parametrize("take", TAKES)
def test_an_interrupted_call_leaves_the_consumer_free(shop: kmq.Store, take: Take):
    for at in range(1, 200, 7):
        with shop.consumer(topics=["t"]) as consumer:
            try:
                with Interruption(at):
                    take(consumer)
            except KeyboardInterrupt:
                assert consumer.position()  # while the interruption is being handled, too


@pytest.mark.parametrize("wait", ["poll", "consume", "consume_arrow"])
def test_a_handler_of_a_signal_may_close_a_consumer_that_waits(shop: kmq.Store, wait: str):
    consumer = shop.consumer("g", topics=["t"], auto_offset_reset="latest", auto_commit=True)
    with on_usr1(consumer.close):
        threading.Timer(0.2, signal.raise_signal, (signal.SIGUSR1,)).start()
        with pytest.raises(kmq.ClosedError):
            getattr(consumer, wait)(timeout=None)
    shop.consumer("g").close()  # the place is free


def test_a_callback_may_close_its_consumer(shop: kmq.Store):
    consumer = shop.consumer("g")
    consumer.subscribe(["t"], on_assign=lambda _: consumer.close())
    with pytest.raises(kmq.ClosedError):
        consumer.poll()
    shop.consumer("g").close()


def test_a_callback_of_the_close_may_close_again(shop: kmq.Store):
    told: list[object] = []
    consumer = shop.consumer("g")

    def revoked(partitions: object) -> None:
        told.append(partitions)
        consumer.close()

    consumer.subscribe(["t"], on_revoke=revoked)
    consumer.close()
    assert told == [{"t": [0, 1]}]


def test_a_close_while_another_thread_reads_is_a_closed_error_there(shop: kmq.Store):
    """The close is held where it commits, and the reading thread calls meanwhile."""
    consumer = shop.consumer("g", topics=["t"], auto_commit=True)
    assert consumer.poll()
    committing, go_on = threading.Event(), threading.Event()
    original = shop.log.commit

    def slow(*arguments: Any, **options: Any) -> Any:
        committing.set()
        assert go_on.wait(10)
        return original(*arguments, **options)

    shop.log.commit = slow  # type: ignore[method-assign]
    closer = threading.Thread(target=consumer.close)
    closer.start()
    assert committing.wait(10)
    for take in TAKES:
        with pytest.raises(kmq.ClosedError):
            take(consumer)
    again = threading.Thread(target=consumer.close)
    again.start()
    go_on.set()
    for thread in (closer, again):
        thread.join(10)
        assert not thread.is_alive()
    assert shop.describe_group("g").committed == {"t": {0: 1, 1: 0}}
    shop.consumer("g").close()


@pytest.mark.parametrize(("is_compiled", "places"), [(compiled.is_there, 1), (False, 5)])
def test_a_send_interrupted_anywhere_leaves_the_others_stored_and_the_producer_usable(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch, places: int, *, is_compiled: bool
):
    monkeypatch.setattr(compiled, "is_there", is_compiled)
    at, interrupted = 1, True
    while interrupted:
        interrupted = False
        with shop.producer(linger=10.0) as producer:
            before = producer.send("t", b"before", b"k")
            try:
                with Interruption(at):
                    producer.send("t", b"v", b"k", properties={"n": 1})
            except KeyboardInterrupt:
                interrupted, at = True, at + 1
            after = producer.send("t", b"after", b"k")
            assert producer.flush(10) == 0
            assert after.result(0).offset - before.result(0).offset in (1, 2)
    assert at > places


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("way", ["arrow", "batch", "queues"])
def test_a_batch_behind_a_send_that_was_interrupted_anywhere_is_stored(
    way: str, *, in_transaction: bool
):
    at, interrupted = 1, True
    while interrupted:
        interrupted = False
        with kmq.open(f"memory://{uuid.uuid4().hex}", maintenance=False) as store:
            queues = store.keyed_queues("t")
            with store.producer(linger=10.0) as producer, ExitStack() as transaction:
                if in_transaction:
                    transaction.enter_context(producer.transaction())
                try:
                    with Interruption(at):
                        (queues.put if way == "queues" else producer.send)("t", b"v")
                except KeyboardInterrupt:
                    interrupted, at = True, at + 1
                if way == "queues":
                    assert len(queues.put_batch(["t"], [b"after"])) == 1
                elif way == "arrow":
                    producer.send_arrow("t", pa.table({"key": [b"t"], "value": [b"after"]}))
                else:
                    producer.send_batch("t", [b"after"], ["t"])
            found = store.read("t", columns=["value"]).read_all()["value"].to_pylist()
            assert found in ([b"after"], [b"v", b"after"]), at
    assert at > 5


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_transaction_that_is_interrupted_is_whole_or_not_there_and_its_producer_goes_on(
    shop: kmq.Store,
):
    shop.create_topic("other")
    with shop.producer() as producer, shop.consumer(topics=["t", "other"]) as consumer:
        consumer.seek_to_end()
        for at in range(1, 400, 3):
            futures = []
            with suppress(KeyboardInterrupt), Interruption(at), producer.transaction() as tx:
                futures.append(tx.send("t", b"%d" % at, partition=0))
                futures.append(tx.send("other", b"%d" % at))
            if producer._in_transaction:  # the signal came before `__exit__` began
                producer.abort_transaction()
            stored = [future for future in futures if future.exception(10) is None]
            with producer.transaction() as tx:
                tx.send("t", b"after")
            found = [record.value for record in consumer.consume(timeout=0)]
            assert found.count(b"after") == 1, at
            assert found.count(b"%d" % at) in (0, 2), at
            assert len(stored) in (0, found.count(b"%d" % at)), at


def test_an_enum_member_is_a_whole_number_of_a_property(shop: kmq.Store):
    with shop.producer() as producer:
        producer.send("t", b"v", properties={"status": HTTPStatus.NOT_FOUND}, partition=0)
    with shop.consumer() as consumer:
        consumer.assign({"t": [0]})
        assert consumer.consume(20)[-1].properties == {"status": 404}


@pytest.mark.parametrize(
    ("way", "stop"),
    [
        ("on_delivery", SystemExit),
        ("on_delivery", KeyboardInterrupt),
        ("done", SystemExit),
        ("done", KeyboardInterrupt),
        ("partitioner", SystemExit),
    ],
)
def test_a_callback_that_would_end_its_thread_ends_no_producer(
    shop: kmq.Store, way: str, stop: type[BaseException]
):
    def leave(*_: object) -> int:
        if troubles:
            raise troubles.pop()("the callback wants to leave")
        return 0

    troubles = [stop]
    with shop.producer(partitioner=leave if way == "partitioner" else "murmur2") as producer:
        told = leave if way == "on_delivery" else None
        first = producer.send("t", b"1", b"k", on_delivery=told)
        if way == "done":
            first.add_done_callback(leave)
        assert producer.flush(10) == 0
        assert producer.send("t", b"2", b"k").result(10)
        assert not troubles


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize("helping", [True, False])
def test_a_partitioner_that_would_end_its_thread_fails_its_records_alone(
    shop: kmq.Store, error: type[BaseException], helping: bool
):
    def leave(*_: object) -> int:
        raise error("the partitioner wants to leave")

    with shop.producer(partitioner=leave) as producer:
        first = producer.send("t", b"1", b"k")
        if helping:
            with suppress(error):  # where it may be a signal's, it reaches who waits, too
                first.result()
        with pytest.raises(kmq.InvalidRequestError, match="wants to leave"):
            first.result(10)
        assert producer.send("t", b"2", partition=0).result(10)


@pytest.mark.parametrize("error", [ValueError, TimeoutError])
def test_what_a_handler_of_a_signal_raises_reaches_who_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
):
    write = WrittenEnd.write
    armed = [True]

    def interrupted(*arguments: Any, **options: Any) -> Any:
        end = write(*arguments, **options)
        if armed:
            armed.pop()
            raise error("too late")
        return end

    monkeypatch.setattr(WrittenEnd, "write", interrupted)
    with kmq.open(tmp_path, maintenance=False) as store:
        armed.clear()
        store.create_topic("t")
        with store.producer(linger=30.0) as producer:
            armed.append(True)
            sent = producer.send("t", b"v")
            with pytest.raises(error, match="too late"):
                sent.result()
            assert sent.result(10).offset == 0


def test_a_producer_may_linger_for_ever(shop: kmq.Store):
    with shop.producer(linger=timedelta.max) as producer:
        assert producer.send("t", b"v").result(10)
        producer.send("t", b"w")
        assert producer.flush(10) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_is_interrupted_while_log_files_change_writes_into_none_that_was_replaced(
    tmp_path: Path,
):
    with (
        kmq.open(tmp_path / "store", durability="os", maintenance=False) as store,
        kmq.open(tmp_path / "store", durability="os", maintenance=False) as other,
    ):
        store.create_topic("t")
        at, interrupted, sent = 0, True, 0
        while interrupted:
            interrupted, at = False, at + 1
            with store.producer(linger=0) as producer:
                producer.send("t", b"").result(10)
                end: Any = other.log._end  # type: ignore[attr-defined]
                with end:
                    end.journal.renew(1, end.cursor)  # as after a failed sync
                folder = store.log._end.journal.folder  # type: ignore[attr-defined]
                try:
                    with Interruption(at, "/kmq_storage/log/files/folder"):
                        folder.open(folder.file_of(1))
                except KeyboardInterrupt:
                    interrupted = True
                last = producer.send("t", b"").result(10)
            assert last.offset == sent + 1, at
            assert other.offsets("t") == {0: (0, last.offset + 1)}, at
            sent = last.offset + 1
        assert at > 3
    with kmq.open(tmp_path / "store") as store:
        assert store.read("t").read_all().num_rows == sent
