"""The processes that a kill storm kills: producers and group members that tell all they are told.

A worker reports through a pipe, outside the store: a producer each record whose future is done, a
group's member where it began and what it committed. Each report is one write, whole or not there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

import kmq_spark as kmq

TOPIC = "storm"
#: Its newest record of each key is kept.
COMPACTED = "storm-latest"
#: Sizes of bodies in bytes, with how often each is taken.
_SIZES = ((0, 40), (100, 40), (3_000, 15), (60_000, 4), (300_000, 1))


def value_of(worker: str, number: int, size: int) -> bytes:
    """The value of a worker's record: its identity, and bytes that follow from it."""
    return b"%s:%d:%d:" % (worker.encode(), number, size) + bytes([number % 251]) * size


def check_value(value: bytes) -> tuple[str, int]:
    """Worker and number of a record whose every byte is as it was sent."""
    worker, number, size, _ = value.split(b":", 3)
    if value != value_of(worker.decode(), int(number), int(size)):
        raise AssertionError(f"record {number!r} of {worker!r} came back with other bytes")
    return worker.decode(), int(number)


def produce(url: str, worker: str, durability: str, seed: int, reports: Connection) -> None:
    """Send records in many ways until killed, and report every one that is acknowledged."""
    rng = random.Random(seed)
    store = kmq.open(url, durability=durability)
    producer = store.producer(
        linger=rng.choice([0.0, 0.002, 0.02]), max_pending_bytes=4_000_000,
        batch_bytes=rng.choice([1_000, 1_000_000]),
    )  # fmt: skip
    for numbers in _runs(rng):
        # Some batches have bytes enough to be staged beside the log.
        large = len(numbers) > 2 and rng.random() < 0.4
        values = [
            value_of(worker, number, rng.randint(0, 60_000) if large else _size(rng))
            for number in numbers
        ]
        _send(producer, values, numbers, reports, rng)
        if rng.random() < 0.3:
            key = rng.choice([b"a", b"b", b"c"])
            producer.send(COMPACTED, values[0], key=key)
        time.sleep(rng.choice([0.0, 0.001, 0.01, 0.03]))


def _runs(rng: random.Random) -> Iterator[range]:
    """Numbers from 0 on without a gap: mostly one at a time, sometimes many at once."""
    first = 0
    while True:
        count = rng.choice([1] * 12 + [2, 20, 100])
        yield range(first, first + count)
        first += count


def _size(rng: random.Random) -> int:
    (size,) = rng.choices([size for size, _ in _SIZES], [often for _, often in _SIZES])
    return rng.randint(0, size)


def _send(
    producer: kmq.Producer, values: list[bytes], numbers: range, reports: Connection,
    rng: random.Random,
) -> None:  # fmt: skip
    if len(values) <= 2:
        for number, value in zip(numbers, values, strict=True):
            producer.send(TOPIC, value, on_delivery=_report_one(number, reports))
    elif rng.random() < 0.5:
        batch = producer.send_batch(TOPIC, values)
        batch.add_done_callback(_report_batch(numbers, reports))
    else:
        rows = pa.table({"value": values, "partition": [rng.randrange(3)] * len(values)})
        arrow = producer.send_arrow(TOPIC, rows)
        arrow.add_done_callback(_report_arrow(numbers, reports))


def _report_one(number: int, reports: Connection) -> Any:
    def report(error: Exception | None, place: kmq.RecordMetadata | None) -> None:
        if place is None:
            _report(reports, "error", repr(error))
        else:
            _report(reports, "acked", number, place.partition, place.offset)

    return report


def _report_batch(numbers: range, reports: Connection) -> Any:
    def report(future: Future[list[kmq.RecordMetadata]]) -> None:
        if future.exception():
            _report(reports, "error", repr(future.exception()))
            return
        for number, place in zip(numbers, future.result(), strict=True):
            _report(reports, "acked", number, place.partition, place.offset)

    return report


def _report_arrow(numbers: range, reports: Connection) -> Any:
    def report(future: Future[kmq.BatchMetadata]) -> None:
        if future.exception():
            _report(reports, "error", repr(future.exception()))
            return
        ((partition, (first, _)),) = future.result().offsets.items()
        for offset, number in enumerate(numbers, first):
            _report(reports, "acked", number, partition, offset)

    return report


def maintain(url: str, worker: str, durability: str, seed: int, reports: Connection) -> None:
    """Look after the store in every way until killed, a little faster than anybody should."""
    rng = random.Random(seed)
    store = kmq.open(url, durability=durability)
    grace = 2.0
    actions: tuple[Callable[[], object], ...] = (
        store.seal,
        store.checkpoint,
        lambda: store.collect(grace=grace),
        lambda: store.maintain(grace=grace),
        lambda: store.compact(TOPIC),
        lambda: store.compact(COMPACTED),
    )
    while True:
        try:
            rng.choice(actions)()
        except kmq.UnavailableError:
            pass  # tried again, as everybody does
        except Exception as error:
            _report(reports, "error", repr(error))
            return
        time.sleep(rng.choice([0.0, 0.01, 0.05]))


def consume(url: str, group: str, durability: str, seed: int, reports: Connection) -> None:
    """Read as a group's one member until killed; report each commit that returned."""
    rng = random.Random(seed)
    store = kmq.open(url, durability=durability)
    with store.consumer(group, topics=[TOPIC]) as consumer:
        positions = dict(consumer.position()[TOPIC])
        _report(reports, "began", *_flat(positions))
        while True:
            for record in consumer.consume(rng.choice([1, 10, 500]), timeout=0.2):
                if record.offset != positions[record.partition]:
                    _report(reports, "error", f"offset {record.offset} after {positions}")
                positions[record.partition] = record.offset + 1
                check_value(record.value or b"")
            if rng.random() < 0.5:
                consumer.commit()
                _report(reports, "committed", *_flat(positions))


def _flat(positions: dict[int, int]) -> list[int]:
    return [number for pair in sorted(positions.items()) for number in pair]


def _report(reports: Connection, *facts: object) -> None:
    reports.send_bytes("\t".join(map(str, facts)).encode())
