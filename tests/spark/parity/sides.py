"""The two logs: what Spark is told to find them, and how they are filled."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)

import kmq_spark as kmq

Headers = list[tuple[str, bytes | None]]

#: When the records of a scenario begin: a record's time is so many milliseconds later.
BEGIN_MS = 1_700_000_000_000
_SECONDS = 30.0
#: The broker answers with errors for ever if a topic is used in its very first moments.
_SETTLE = 1.0


@dataclass(frozen=True)
class Record:
    """What is sent to one partition."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    #: Milliseconds after BEGIN_MS.
    at: int = 0
    headers: Headers | None = None


class Side(Protocol):
    """One of the two logs."""

    #: The format for Spark, which is also its name.
    name: str
    #: The options that find it: the only ones by which the two differ.
    address: Mapping[str, str]

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, and wait until it can be used."""

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic this many partitions in all."""

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""

    def send(self, topic: str, records: Sequence[Record]) -> None:
        """Append records, in order."""

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Give up the records below an offset."""


class KafkaSide:
    """A broker."""

    name = "kafka"

    def __init__(self, bootstrap: str) -> None:
        # The producer of the sink gives up after a minute by default.
        self.address = {"kafka.bootstrap.servers": bootstrap, "kafka.max.block.ms": "5000"}
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        # Topics that come again under the same name have to be looked up anew.
        self._settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0}

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, and wait until it can be used."""
        # By default Kafka would soon drop records that are so old.
        new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
        self._admin.create_topics([new])[topic].result()
        self._wait_for_partitions(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic this many partitions in all."""
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        self._wait_for_partitions(topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self._admin.delete_topics([topic])[topic].result()
        _wait(lambda: topic not in self._admin.list_topics(timeout=_SECONDS).topics)
        time.sleep(_SETTLE)

    def send(self, topic: str, records: Sequence[Record]) -> None:
        """Append records, in order."""
        producer = Producer(self._settings)
        for each in records:
            producer.produce(
                topic,
                each.value,
                each.key,
                each.partition,
                timestamp=BEGIN_MS + each.at,
                headers=each.headers or [],
            )
        if producer.flush(_SECONDS):
            raise RuntimeError(f"Kafka did not take the records of {topic}")

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Give up the records below an offset."""
        place = TopicPartition(topic, partition, before)
        for done in self._admin.delete_records([place]).values():
            done.result()

    def _wait_for_partitions(self, topic: str, partitions: int) -> None:
        def all_there() -> bool:
            found = self._admin.list_topics(timeout=_SECONDS).topics.get(topic)
            return found is not None and len(found.partitions) == partitions

        _wait(all_there)
        time.sleep(_SETTLE)


class KmqSide:
    """A store."""

    name = "kmq"

    def __init__(self, path: str) -> None:
        self.address = {"path": path}
        self._store = kmq.open(path, durability="os")

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic."""
        self._store.create_topic(topic, partitions=partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic this many partitions in all."""
        self._store.add_partitions(topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._store.delete_topic(topic)

    def send(self, topic: str, records: Sequence[Record]) -> None:
        """Append records, in order."""
        with self._store.producer(linger=0) as producer:
            for each in records:
                producer.send(
                    topic,
                    each.value,
                    each.key,
                    partition=each.partition,
                    timestamp=datetime.fromtimestamp((BEGIN_MS + each.at) / 1000, UTC),
                    headers=each.headers,
                )

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Give up the records below an offset."""
        self._store.trim(topic, {partition: before})


def _wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("Kafka did not do what was asked of it")
        time.sleep(0.05)
