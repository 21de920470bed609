"""Ctrl-C at every place of a call: producer and store go on, what was acknowledged is there once.

Finds a lock that stays taken, a thread that is never woken, and records that are taken and
forgotten, or stored twice. The places are those of kmq and of what it calls in `threading`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.sending.producer import Producer
from tests.support.interruption import Interruption
from tests.unit.client.stored import values

EVERYWHERE = ("/kmq_spark/", "/kmq_storage/", "/threading.py", "/contextlib.py", "/queue.py")
#: Seconds after which a producer is taken to hang; it needs none.
PATIENCE = 20

Call = Callable[[Producer, bytes], Any]


def _send_and_wait(producer: Producer, value: bytes) -> Any:
    return producer.send("t", value).result()


def _send_batch(producer: Producer, value: bytes) -> Any:
    return producer.send_batch("t", [value] * 3)


def _send_batch_and_wait(producer: Producer, value: bytes) -> Any:
    return producer.send_batch("t", [value] * 3).result()


def _send_arrow_and_wait(producer: Producer, value: bytes) -> Any:
    return producer.send_arrow("t", pa.table({"value": [value] * 3})).result()


def _send_and_flush(producer: Producer, value: bytes) -> Any:
    producer.send("t", value)
    return producer.flush()


def _send_and_wait_a_while(producer: Producer, value: bytes) -> Any:
    return producer.send("t", value).result(PATIENCE)


def _wait_as_futures_do(producer: Producer, value: bytes) -> Any:
    return futures.wait([producer.send("t", value)])


CALLS: list[Call] = [
    _send_and_wait,
    _send_batch,
    _send_batch_and_wait,
    _send_arrow_and_wait,
    _send_and_flush,
    _send_and_wait_a_while,
    _wait_as_futures_do,
]


def _interrupt_everywhere(call: Call, producer: Producer) -> Counter[bytes]:
    """Interrupt the call at each of its places; the values that must be there, and how often."""
    expected: Counter[bytes] = Counter()
    at, left = 1, True
    while left:
        interruption = Interruption(at, *EVERYWHERE)
        # A RuntimeError is what the standard library's own waiting makes of it.
        with suppress(KeyboardInterrupt, RuntimeError), interruption:
            call(producer, b"interrupted")
        after = b"after %d" % at
        sent = producer.send("t", after)
        assert producer.flush(PATIENCE) == 0, at
        assert sent.exception(0) is None
        assert len(producer) == 0
        expected[after] += 1
        left, at = interruption.came, at + 1
    assert at > 30
    return expected


# What is raised in a generator that is let go reaches nobody.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("durability", "linger"), [("os", 0.0), ("fsync", 0.001)])
def test_a_producer_goes_on_wherever_a_call_was_interrupted(
    tmp_path: Path, call: Call, durability: str, linger: float
):
    with kmq.open(tmp_path, durability=durability, maintenance=False) as store:
        store.create_topic("t")
        with store.producer(linger=linger) as producer:
            _send_and_wait(producer, b"first")  # who waited once commits by itself
            expected = _interrupt_everywhere(call, producer)
        found = Counter(values(store, "t"))
        assert {value: found[value] for value in expected} == expected


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_commit_of_a_group_that_was_interrupted_anywhere_keeps_no_lock(tmp_path: Path):
    with (
        kmq.open(tmp_path, maintenance=False) as store,
        kmq.open(tmp_path, maintenance=False) as other,
    ):
        store.create_topic("t")
        store.producer().send_batch("t", [b"v"] * 1000).result()
        consumer = store.consumer("g", topics=["t"])
        at, left = 1, True
        while left:
            interruption = Interruption(at, *EVERYWHERE)
            with suppress(KeyboardInterrupt), interruption:
                consumer.poll()
                consumer.commit()
            other.alter_topic("t", retention=at)  # no lock is left in this process
            consumer.poll()
            consumer.commit()
            assert store.describe_group("g").committed == consumer.position(), at
            left, at = interruption.came, at + 1
        assert at > 100
        consumer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_call_of_the_store_that_was_interrupted_anywhere_keeps_no_lock(tmp_path: Path):
    with (
        kmq.open(tmp_path, maintenance=False) as store,
        kmq.open(tmp_path, maintenance=False) as other,
    ):
        store.create_topic("t")
        at, left = 1, True
        while left:
            interruption = Interruption(at, *EVERYWHERE)
            with suppress(KeyboardInterrupt), interruption:
                store.alter_topic("t", capacity=2 * at)
            other.alter_topic("t", capacity=2 * at + 1)
            store.alter_topic("t", capacity=None)
            left, at = interruption.came, at + 1
        assert at > 100
