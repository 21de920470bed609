"""The future of a send behaves as a concurrent.futures.Future, and its callback tells the same.

Finds: waits that never end, callbacks that are lost, doubled or out of order, and errors that
reach one of future and callback only.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import threading
import time
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import kmq_spark as kmq
from tests.unit.client.stored import values


@pytest.fixture
def producer(store: kmq.Store) -> Any:
    """A producer that lingers so long that nothing is sent unless somebody waits."""
    store.create_topic("t", partitions=2)
    with store.producer(linger=30.0) as opened:
        yield opened


def test_a_future_is_pending_then_done_with_its_metadata(producer: kmq.Producer):
    future = producer.send("t", b"v", partition=1)
    assert isinstance(future, concurrent.futures.Future)
    assert not future.done()
    assert not future.cancelled()
    sent = future.result(10)
    assert future.done()
    assert future.exception() is None
    assert (sent.topic, sent.partition, sent.offset, sent.duplicate) == ("t", 1, 0, False)
    assert future.result() == sent


def test_waiting_for_a_result_ends_the_linger(producer: kmq.Producer):
    started = time.monotonic()
    producer.send("t", b"v").result()
    assert time.monotonic() - started < 15


def test_a_send_cannot_be_cancelled(producer: kmq.Producer):
    future = producer.send("t", b"v")
    assert future.cancel() is False
    assert future.running()
    future.result(10)
    assert future.cancel() is False
    assert not future.running()


@pytest.mark.parametrize("error_of", ["result", "exception"])
def test_a_wait_with_a_limit_raises_a_retryable_timeout(store: kmq.Store, error_of: str):
    store.create_topic("t")
    started, go_on = threading.Event(), threading.Event()

    def partitioner(topic: str, key: bytes | None, partitions: int) -> int:
        started.set()
        go_on.wait(30)
        return 0

    with store.producer(partitioner=partitioner) as producer:
        future = producer.send("t", b"v", b"k")
        started.wait(10)
        for limit in (0, 0.05, -1, timedelta(milliseconds=1)):
            with pytest.raises(kmq.KmqTimeoutError) as caught:
                getattr(future, error_of)(limit)
            assert caught.value.retryable
            assert isinstance(caught.value, TimeoutError)
        for wrong in ("1", math.nan, Decimal(1)):
            with pytest.raises(kmq.InvalidRequestError, match="timeout"):
                getattr(future, error_of)(wrong)
        go_on.set()
        assert future.result(timeout=10).offset == 0


def test_concurrent_futures_wait_and_as_completed_take_them(producer: kmq.Producer):
    sent = [producer.send("t", b"%d" % number) for number in range(50)]
    assert set(concurrent.futures.as_completed(sent[:20], timeout=10)) == set(sent[:20])
    more = [producer.send("t", b"%d" % number) for number in range(50)]
    found = concurrent.futures.wait([*sent, *more], timeout=10)
    assert (found.done, found.not_done) == ({*sent, *more}, set())


def test_concurrent_futures_wait_knows_the_first_exception(producer: kmq.Producer):
    good, bad = producer.send("t", b"v"), producer.send("missing", b"v")
    found = concurrent.futures.wait([good, bad], 10, concurrent.futures.FIRST_EXCEPTION)
    assert bad in found.done
    assert isinstance(bad.exception(), kmq.NotFoundError)


def test_asyncio_can_await_them(store: kmq.Store):
    store.create_topic("t")
    producer = store.producer()

    async def send_all() -> list[kmq.RecordMetadata]:
        sent = [producer.send("t", b"v") for _ in range(5)]
        return await asyncio.wait_for(asyncio.gather(*map(asyncio.wrap_future, sent)), 10)

    assert [place.offset for place in asyncio.run(send_all())] == list(range(5))


def test_asyncio_gets_the_error(store: kmq.Store):
    producer = store.producer()

    async def send() -> None:
        await asyncio.wait_for(asyncio.wrap_future(producer.send("missing", b"v")), 10)

    with pytest.raises(kmq.NotFoundError):
        asyncio.run(send())


def test_many_threads_wait_for_the_same_future(producer: kmq.Producer):
    future = producer.send("t", b"v")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: future.result(10), range(8)))
    assert len({(place.partition, place.offset) for place in found}) == 1


def test_done_callbacks_get_the_future_once_before_and_after_it_is_done(producer: kmq.Producer):
    called = []
    future = producer.send("t", b"v")
    future.add_done_callback(called.append)
    future.add_done_callback(called.append)
    producer.flush(10)
    future.add_done_callback(called.append)
    assert [each is future for each in called] == [True, True, True]


@pytest.mark.filterwarnings("default")
def test_a_callback_that_raises_hurts_nobody_else(producer: kmq.Producer, caplog: Any):
    called = []

    def bad(*_: Any) -> None:
        raise RuntimeError("callback failed")

    first = producer.send("t", b"1", on_delivery=bad)
    second = producer.send("t", b"2", on_delivery=lambda *told: called.append(told))
    first.add_done_callback(bad)
    first.add_done_callback(called.append)
    assert producer.flush(10) == 0
    assert first.exception() is None
    assert len(called) == 2
    assert second.result().offset is not None
    assert producer.send("t", b"3").result(10).topic == "t"
    assert "callback failed" in caplog.text


def test_an_on_delivery_that_nobody_awaits_is_told_in_the_log(producer: kmq.Producer, caplog: Any):
    async def note(*_: Any) -> None: ...

    sent = producer.send("t", b"1", on_delivery=note)
    assert producer.flush(10) == 0
    assert sent.result().topic == "t"
    assert "nobody awaits it" in caplog.text


def test_on_delivery_gets_the_metadata_in_the_order_of_the_sends(producer: kmq.Producer):
    told: list[tuple[Any, Any]] = []
    sent = [
        producer.send(
            "t",
            b"%d" % number,
            partition=number % 2,
            on_delivery=lambda error, place: told.append((error, place)),
        )
        for number in range(100)
    ]
    producer.flush(10)
    assert told == [(None, future.result()) for future in sent]


def test_a_failed_send_reaches_its_future_and_its_callback(producer: kmq.Producer):
    told: list[tuple[Any, Any]] = []
    future = producer.send("missing", b"v", on_delivery=lambda *both: told.append(both))
    assert producer.flush(10) == 0
    error = future.exception()
    assert isinstance(error, kmq.NotFoundError)
    assert str(error) == "Topic[missing] doesn't exist."
    assert told == [(error, None)]
    with pytest.raises(kmq.NotFoundError):
        future.result()


def test_a_bad_send_fails_alone_and_the_callbacks_keep_their_order(producer: kmq.Producer):
    told: list[tuple[int, Any]] = []
    sent = [
        producer.send(
            "t",
            b"x" * (2_000_000 if number == 3 else 1),
            partition=9 if number == 5 else 0,
            on_delivery=lambda error, _, number=number: told.append((number, type(error))),
        )
        for number in range(8)
    ]
    producer.flush(10)
    bad = {3: kmq.InvalidRequestError, 5: kmq.InvalidRequestError}
    assert told == [(number, bad.get(number, type(None))) for number in range(8)]
    assert [future.result().offset for future in sent if not future.exception()] == [*range(6)]


def test_a_callback_may_send_and_close_from_the_producers_thread(store: kmq.Store):
    store.create_topic("t")
    producer = store.producer(max_pending_bytes=1_000)
    chain = iter(range(5))

    def send_on(*_: Any) -> None:
        if next(chain, None) is not None:
            producer.send("t", b"x" * 600, on_delivery=send_on)
            producer.send("t", b"y" * 600)

    producer.send("t", b"x" * 600, on_delivery=send_on).result(10)
    deadline = time.monotonic() + 10
    while len(values(store, "t")) < 11 and time.monotonic() < deadline:
        time.sleep(0.01)
    producer.close(10)
    assert len(values(store, "t")) == 11


def test_a_callback_that_closes_the_producer_does_not_hang(store: kmq.Store):
    store.create_topic("t")
    producer = store.producer()
    closed = threading.Event()

    def close(*_: Any) -> None:
        producer.close()
        closed.set()

    producer.send("t", b"v", on_delivery=close)
    assert closed.wait(10)
    with pytest.raises(kmq.ClosedError):
        producer.send("t", b"v")


@pytest.mark.parametrize("kind", ["batch", "arrow", "empty batch", "empty arrow", "failed"])
def test_futures_of_batches_behave_the_same(producer: kmq.Producer, kind: str):
    import pyarrow as pa

    future: concurrent.futures.Future[Any] = {
        "batch": lambda: producer.send_batch("t", [b"a", b"b"]),
        "arrow": lambda: producer.send_arrow("t", pa.table({"value": [b"a", b"b"]})),
        "empty batch": lambda: producer.send_batch("t", []),
        "empty arrow": lambda: producer.send_arrow(
            "t", pa.table({"value": pa.array([], "binary")})
        ),
        "failed": lambda: producer.send_batch("missing", [b"a"]),
    }[kind]()
    called: list[Any] = []
    future.add_done_callback(called.append)
    assert concurrent.futures.wait([future], 10).done == {future}
    assert (future.exception() is not None) == (kind == "failed")
    future.add_done_callback(called.append)
    deadline = time.monotonic() + 10
    while len(called) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(called) == 2
