"""What handles have in common: how they print, and that they stay where they were opened."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark import aio, openmessaging
from kmq_spark.v2 import KmqBroker
from tests.support.in_between import in_between


def _listen(*_called: object) -> kmq.OrderlyStatus:
    return kmq.OrderlyStatus.SUCCESS


HANDLES: dict[str, Callable[[kmq.Store], Any]] = {
    "Store": lambda store: store,
    "Producer": lambda store: store.producer(),
    "Consumer": lambda store: store.consumer(topics=["t"]),
    "Queue": lambda store: store.queue("q"),
    "KeyedQueues": lambda store: store.keyed_queues("k"),
    "OrderlyConsumer": lambda store: store.orderly_consumer("g", ["t"], _listen),
}


@pytest.fixture
def filled(store: kmq.Store) -> kmq.Store:
    store.create_topic("t")
    store.create_queue("q")
    return store


@pytest.mark.parametrize("kind", HANDLES)
def test_a_closed_handle_is_not_entered_again(filled: kmq.Store, kind: str):
    handle = HANDLES[kind](filled)
    with handle as entered:
        assert entered is handle
    handle.close()
    with pytest.raises(kmq.ClosedError), handle:
        pytest.fail("it was entered")


@pytest.mark.parametrize("kind", HANDLES)
def test_a_handle_that_is_pickled_or_copied_says_what_to_do_instead(filled: kmq.Store, kind: str):
    handle = HANDLES[kind](filled)
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(kmq.IllegalStateError, match=f"a {kind} can't be pickled.*open the"):
            call(handle)
    handle.close()


def test_a_delivery_is_not_pickled_since_its_answer_is_given_here(filled: kmq.Store):
    with filled.producer() as producer:
        producer.send_to_queue("q", b"1").result()
    keyed = filled.keyed_queues("k")
    keyed.put("name", b"2").result()
    for held in (*filled.queue("q").receive(), *keyed.receive("name")):
        kind = type(held).__name__
        with pytest.raises(kmq.IllegalStateError, match=f"a {kind} can't be pickled"):
            pickle.dumps(held)
        held.ack()


def test_a_future_is_not_pickled_but_its_result_is(filled: kmq.Store):
    with filled.producer() as producer:
        futures = [producer.send("t", b"1"), producer.send_batch("t", [b"2", b"3"])]
        for future in futures:
            for call in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(kmq.IllegalStateError, match=r"pass on its result\(\)"):
                    call(future)
            assert pickle.loads(pickle.dumps(future.result())) == future.result()


def test_what_the_other_interfaces_hand_out_is_not_pickled_either(store: kmq.Store, tmp_path: Path):
    broker = KmqBroker(store)
    settings = openmessaging.KeyValue().put("STORE_PATH", tmp_path / "other")
    with openmessaging.PullConsumer(settings) as consumer:
        for handle in (broker, broker.create_topic("array"), consumer):
            kind = type(handle).__name__
            for call in (pickle.dumps, copy.copy):
                with pytest.raises(kmq.IllegalStateError, match=f"a {kind} can't be pickled"):
                    call(handle)


@pytest.mark.parametrize("kind", HANDLES)
def test_a_handle_prints_what_it_is_of(filled: kmq.Store, kind: str):
    handle = HANDLES[kind](filled)
    names = {"Consumer": "None", "Queue": "'q'", "KeyedQueues": "'k'", "OrderlyConsumer": "'g'"}
    assert repr(handle) == f"{kind}({names.get(kind, repr(filled.url))})"
    handle.close()


def test_the_asyncio_twins_print_and_list_what_they_can_do(store_url: str):
    async def main() -> None:
        async with aio.open(store_url) as store, store.producer() as producer:
            await store.create_topic("t")
            async with store.consumer(topics=["t"]) as consumer:
                assert [repr(each) for each in (store, producer, consumer)] == [
                    f"aio.Store({store.url!r})",
                    f"aio.Producer({store.url!r})",
                    "aio.Consumer(None)",
                ]
                assert {"create_topic", "describe_group", "producer"} <= set(dir(store))
                assert {"poll", "seek", "commit"} <= set(dir(consumer))
                for handle in (store, producer, consumer):
                    with pytest.raises(kmq.IllegalStateError, match="can't be pickled"):
                        copy.copy(handle)
        for handle in (store, producer, consumer):
            with pytest.raises(kmq.ClosedError):
                await handle.__aenter__()

    asyncio.run(main())


def test_a_member_of_a_group_has_a_name_or_none_but_no_empty_one(filled: kmq.Store):
    with pytest.raises(kmq.InvalidRequestError, match="name"):
        filled.consumer("g", topics=["t"], name="")
    assert filled.groups() == []


def test_handles_are_found_and_closed_while_another_thread_opens_some(filled: kmq.Store):
    kept = [filled.queue("q") for _ in range(3)]
    for call in (filled.queues, filled.close):
        with in_between(lambda: kept.append(filled.queue("q")), "__iter__", "valuerefs"):
            call()
