"""Ctrl-C at any moment while a member or a listener is closed: a second close ends it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_spark.client.orderly.rules import OrderlyStatus
from kmq_spark.openmessaging import access
from kmq_storage.waking import Flag
from tests.support.interruption import Interruption
from tests.support.waiting import until

_FOLDERS = ("/kmq_spark/", "/threading.py", "/waking.py", "/contextlib.py")


@pytest.fixture
def shop() -> Iterator[kmq.Store]:
    """Topic `t` with four records."""
    with kmq.open(f"memory://{uuid.uuid4().hex}", maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send_batch("t", [b"v"] * 4).result(10)
        yield store


def _ends(call: Callable[[], object]) -> bool:
    """Whether a call comes back."""
    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    calling.join(10)
    return not calling.is_alive()


def _interrupts(*_: object) -> None:
    raise KeyboardInterrupt


def _interrupted(call: Callable[[], object], at: int) -> bool:
    with suppress(KeyboardInterrupt), Interruption(at, *_FOLDERS) as interruption:
        call()
    return interruption.came


def test_a_member_whose_close_was_interrupted_leaves_with_the_second(shop: kmq.Store):
    at, came = 1, True
    while came:
        consumer = shop.consumer("g", topics=["t"])
        assert consumer.consume(4), at
        came = _interrupted(consumer.close, at)
        consumer.close()
        assert not shop.describe_group("g").members, at
        at += 1
    assert at > 3


def test_an_orderly_consumer_whose_close_was_interrupted_ends_with_the_second(shop: kmq.Store):
    at, came = 1, True
    while came:
        consumer = shop.orderly_consumer("g", ["t"], lambda *_: OrderlyStatus.SUCCESS)
        consumer.start()
        came = _interrupted(consumer.close, at)
        assert _ends(consumer.close), at
        assert not shop.describe_group("g").members, at
        at += 1
    assert at > 3


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_orderly_consumer_that_was_interrupted_while_it_started_can_start_or_close(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool
):
    seen: list[object] = []

    def listen(records: list[kmq.Record], _: object) -> OrderlyStatus:
        seen.extend(records)
        return OrderlyStatus.SUCCESS

    consumer = shop.orderly_consumer("g", ["t"], listen)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(consumer._thread, "start", _interrupts)
        consumer.start()
    if goes_on:
        consumer.start()
        until(lambda: len(seen) == 4, 10)
    consumer.close()
    assert not shop.describe_group("g").members


def test_a_listener_whose_attaching_was_interrupted_can_be_attached_again(
    monkeypatch: pytest.MonkeyPatch,
):
    settings = oms.KeyValue().put("STORE_PATH", f"memory://{uuid.uuid4().hex}")
    seen: list[bytes] = []
    with oms.Producer(settings) as producer, oms.PushConsumer(settings) as consumer:
        producer.send(producer.create_bytes_message_to_queue("q", b"a"))
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(threading.Thread, "start", _interrupts)
            consumer.attach_queue("q", lambda *_: None)
        consumer.attach_queue("q", lambda message, _: seen.append(message.get_body()))
        until(lambda: seen, 10)
    assert seen == [b"a"]


def test_a_consumer_whose_shutdown_was_interrupted_leaves_its_store_with_the_second(
    monkeypatch: pytest.MonkeyPatch,
):
    consumer = oms.PullConsumer(oms.KeyValue().put("STORE_PATH", f"memory://{uuid.uuid4().hex}"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ExitStack, "close", _interrupts)
        consumer.shutdown()
    consumer.shutdown()
    assert not access._shared


def test_a_push_consumer_goes_on_after_an_interrupted_suspend_and_resume():
    settings = oms.KeyValue().put("STORE_PATH", f"memory://{uuid.uuid4().hex}")
    seen: list[bytes] = []
    with oms.Producer(settings) as producer, oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", lambda message, _: seen.append(message.get_body()))

        def pause() -> None:
            consumer.suspend()
            consumer.resume()

        at, came = 1, True
        while came:
            came = _interrupted(pause, at)
            with suppress(kmq.IllegalStateError):
                consumer.resume()
            producer.send(producer.create_bytes_message_to_queue("q", b"%d" % at))
            until(lambda: seen, 10)
            seen.clear()
            at += 1
    assert at > 3


def test_who_waits_for_a_flag_without_limit_goes_on_waiting_when_it_is_cleared_again():
    flag, waited = Flag(), threading.Event()

    def wait() -> None:
        flag.wait()
        waited.set()

    threading.Thread(target=wait, daemon=True).start()
    for _ in range(100):
        flag.set()
        flag.clear()
        if waited.wait(0.001):  # it looked in between
            break
    flag.set()
    assert waited.wait(10)
    assert flag.wait(0)
    flag.clear()
    assert not flag.wait(0)
