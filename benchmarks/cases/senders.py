"""Senders in a process of their own: 200 records a second, each carrying the moment it was sent."""

from __future__ import annotations

import multiprocessing
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.job import KEY_BYTES, VALUE_BYTES

PER_SECOND = 200
_A_COMMIT = 20
STAMP = struct.Struct("<q")
KEY = b"k" * KEY_BYTES
SPAWN = multiprocessing.get_context("spawn")


def stamped() -> bytes:
    """A value that begins with this moment."""
    return STAMP.pack(time.time_ns()) + bytes(VALUE_BYTES - STAMP.size)


def delay_ms(value: bytes) -> float:
    """The time since a value was made, on the same machine."""
    return float((time.time_ns() - STAMP.unpack_from(value)[0]) / 1e6)


def paced(count: int) -> Iterator[None]:
    """As many turns, 200 a second, at fixed moments whatever a turn takes."""
    begun = time.perf_counter()
    for turn in range(count):
        time.sleep(max(0.0, begun + turn / PER_SECOND - time.perf_counter()))
        yield


@contextmanager
def sending(send: Callable[..., None], *arguments: object) -> Iterator[None]:
    """Run a sender beside the block; it is ended with the block if it still runs."""
    process = SPAWN.Process(target=send, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def send_to_kmq(url: str, topic: str, durability: str, count: int) -> None:
    """Through a kmq producer that does not linger."""
    import kmq_spark as kmq

    with kmq.open(url, durability=durability) as store, store.producer(linger=0.0) as producer:
        for _ in paced(count):
            producer.send(topic, stamped(), KEY)


def send_to_kafka(bootstrap: str, topic: str, count: int) -> None:
    """Through a confluent-kafka producer that does not linger."""
    from benchmarks.peers import topics

    producer = topics.producer(bootstrap, topic, **{"linger.ms": 0})
    for _ in paced(count):
        producer.produce(topic, stamped(), KEY)
        producer.poll(0)
    producer.flush()


def send_to_delta(path: str, count: int) -> None:
    """Through delta-rs, a commit for twenty records: one for each takes longer than they come."""
    import pyarrow as pa
    from deltalake import write_deltalake

    waiting: list[bytes] = []
    for _ in paced(count):
        waiting.append(stamped())
        if len(waiting) == _A_COMMIT:
            rows = pa.table({"key": [KEY] * len(waiting), "value": waiting})
            write_deltalake(path, rows, mode="append")
            waiting.clear()


def send_to_file(path: str, count: int) -> None:
    """Straight to the end of a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in paced(count):
        os.write(file, stamped())
    os.close(file)
