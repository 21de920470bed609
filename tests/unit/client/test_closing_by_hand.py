"""Consumers that are closed without `with`: `auto_commit` tells a clean close from another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress

import pytest

import kmq_spark as kmq
from kmq_spark import aio


def _fail(consumer: kmq.Consumer) -> None:
    for record in consumer:
        if record.value == b"3":
            raise RuntimeError("processing failed")


def _in_finally(store: kmq.Store) -> None:
    consumer = store.consumer("g", topics=["t"], auto_commit=True)
    try:
        _fail(consumer)
    finally:
        consumer.close()


def _in_closing(store: kmq.Store) -> None:
    with closing(store.consumer("g", topics=["t"], auto_commit=True)) as consumer:
        _fail(consumer)


def _in_a_stack(store: kmq.Store) -> None:
    with ExitStack() as stack:
        consumer = store.consumer("g", topics=["t"], auto_commit=True)
        stack.callback(consumer.close)
        _fail(consumer)


def _with_the_store(store: kmq.Store) -> None:
    try:
        _fail(store.consumer("g", topics=["t"], auto_commit=True))
    finally:
        store.close()


@pytest.mark.parametrize("fail", [_in_finally, _in_closing, _in_a_stack, _with_the_store])
def test_a_close_by_hand_after_an_exception_commits_nothing(
    store_url: str, fail: Callable[[kmq.Store], None]
):
    with kmq.open(store_url) as store:
        _fill(store)
        with pytest.raises(RuntimeError, match="processing failed"):
            fail(kmq.open(store_url))
        assert store.describe_group("g").committed == {"t": {0: 3}}


def test_a_close_by_hand_commits_after_an_exception_that_was_handled(store: kmq.Store):
    _fill(store)
    consumer = store.consumer("g", topics=["t"], auto_commit=True)
    try:
        with suppress(RuntimeError):
            _fail(consumer)
    finally:
        consumer.close()
    assert store.describe_group("g").committed == {"t": {0: 4}}


def test_a_close_by_hand_of_the_twin_after_an_exception_commits_nothing(
    store: kmq.Store, store_url: str
):
    _fill(store)

    async def work() -> None:
        async with aio.open(store_url) as twin:
            consumer = await twin.consumer("g", topics=["t"], auto_commit=True)
            try:
                await consumer.consume(3)
                await consumer.consume(2)
                raise RuntimeError("processing failed")
            finally:
                await consumer.close()

    with pytest.raises(RuntimeError, match="processing failed"):
        asyncio.run(work())
    assert store.describe_group("g").committed == {"t": {0: 3}}


def _fill(store: kmq.Store) -> None:
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"%d" % n for n in range(5)])
