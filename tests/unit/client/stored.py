"""What a store holds, read back the plain way, for the tests of the client."""

from __future__ import annotations

from typing import Any

import kmq_spark as kmq


def records(store: kmq.Store, topic: str) -> list[kmq.Record]:
    """Every record of a topic, by partition and offset."""
    found: list[kmq.Record] = []
    with store.consumer(topics=[topic]) as consumer:
        while some := consumer.consume(10_000, timeout=0.0):
            found += some
    return sorted(found, key=lambda record: (record.partition, record.offset))


def values(store: kmq.Store, topic: str) -> list[bytes | None]:
    """The values of a topic, by partition and offset."""
    return [record.value for record in records(store, topic)]


def lsn(store: kmq.Store) -> int:
    """The number of the last commit: unchanged means that nothing was written."""
    return store.log.refresh().lsn


def send_one(store: kmq.Store, *arguments: Any, **options: Any) -> kmq.Record:
    """Send one record to topic `t` and return it as it comes back."""
    store.create_topic("t")
    with store.producer() as producer:
        sent = producer.send("t", *arguments, **options).result(10)
    found = records(store, "t")
    assert found[-1].offset == sent.offset
    return found[-1]


def aborted(future: Any, cause: type[BaseException] = BaseException) -> BaseException:
    """The error of a send whose transaction was aborted for such a cause."""
    error = future.exception(10)
    assert isinstance(error, kmq.TransactionAbortedError), error
    assert isinstance(error.__cause__ or error, cause), error.__cause__
    return error
