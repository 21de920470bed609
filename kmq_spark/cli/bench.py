"""`kmq bench`: measures how fast kmq is at a place, in a topic that it deletes again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

import kmq_spark as kmq
from kmq_spark.cli.command import Command, argument, given, positive
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output, Row

#: How many different values there are, and rows of a table.
_VALUES = 10_000
#: The most records that are waited for one by one.
_WAITED = 1_000


def _bench(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, create=True, **given(arguments, "durability")) as store:
        env = store.log.environment
        topic = f"kmq-bench-{env.new_uuid().hex[:12]}"
        store.create_topic(topic)
        try:
            count = min(arguments.records, _VALUES)
            values = [env.rng.randbytes(arguments.bytes) for _ in range(count)]
            output.rows([*_sent(store, topic, values, arguments.records), *_read(store, topic)])
        finally:
            store.delete_topic(topic)


def _sent(store: kmq.Store, topic: str, values: list[bytes], records: int) -> Iterator[Row]:
    clock = store.log.environment.monotonic
    with store.producer(linger=0.0) as producer:
        waits = []
        for value in values[:_WAITED]:
            begun = clock()
            producer.send(topic, value).result()
            waits.append(clock() - begun)
        yield _figure(
            "send and wait", len(waits), sum(waits), p99=sorted(waits)[99 * len(waits) // 100]
        )
    # Made before the time is taken: the first array of a process imports pandas.
    table = pa.table({"value": pa.array(values, pa.binary())})
    ways: list[tuple[str, Any]] = [
        ("send", partial(_send, values)),
        ("send_arrow", partial(_send_arrow, table)),
    ]
    for name, send in ways:
        with store.producer() as producer:
            begun = clock()
            send(producer, topic, records)
            producer.flush()
            yield _figure(name, records, clock() - begun)


def _send(values: list[bytes], producer: kmq.Producer, topic: str, records: int) -> None:
    for number in range(records):
        producer.send(topic, values[number % len(values)])


def _send_arrow(table: pa.Table, producer: kmq.Producer, topic: str, records: int) -> None:
    for first in range(0, records, len(table)):
        producer.send_arrow(topic, table.slice(0, records - first))


def _read(store: kmq.Store, topic: str) -> Iterator[Row]:
    clock = store.log.environment.monotonic
    readers: dict[str, Callable[[kmq.Consumer], int]] = {
        "poll": lambda consumer: sum(1 for _ in iter(consumer.poll, None)),
        "consume_arrow": lambda consumer: sum(table.num_rows for table in _tables(consumer)),
    }
    for name, read in readers.items():
        with store.consumer(topics=topic) as consumer:
            begun = clock()
            records = read(consumer)
            yield _figure(name, records, clock() - begun)


def _tables(consumer: kmq.Consumer) -> Iterator[pa.Table]:
    return iter(lambda: consumer.consume_arrow(timeout=0.0), None)


def _figure(what: str, records: int, seconds: float, p99: float | None = None) -> dict[str, Any]:
    """One line of the result; the 99th percentile only where each record was waited for."""
    return {
        "what": what,
        "records": records,
        "per_second": round(records / seconds),
        "p99_ms": None if p99 is None else round(1e3 * p99, 3),
    }


COMMANDS = (
    Command(
        "bench",
        "measure how fast kmq sends and reads here, in a topic that is deleted again",
        _bench,
        (
            argument(
                "--records",
                type=positive,
                default=100_000,
                help="records for each way of sending (100,000)",
            ),
            argument("--bytes", type=positive, default=100, help="bytes of each value (100)"),
            argument(
                "--durability",
                choices=("fsync", "os"),
                help="what an acknowledgement means (fsync)",
            ),
        ),
    ),
)
