"""Kafka topics for the cases: made, filled, counted."""

from __future__ import annotations

import time
import uuid

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import dataset
from benchmarks.job import PARTITIONS

# What served Kafka best here, as measured: a queue that never fills, and a poll(0) per thousand.
QUEUE = {"queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 1_048_576}


def create(bootstrap: str, *, fsync: bool = False) -> str:
    """A new topic under a new name; with fsync each acknowledgement waits for the disk."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"flush.messages": "1"} if fsync else {}
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)]).values():
        made.result()
    # A topic written to in its very first moments now and then answers with errors for ever.
    time.sleep(1.0)
    return name


def delete(bootstrap: str, topic: str) -> None:
    """Drop a topic, so that its files don't crowd the disk."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for dropped in admin.delete_topics([topic]).values():
        dropped.result()


def count(bootstrap: str, topic: str) -> int:
    """How many records the broker holds in a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    try:
        marks = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            for partition in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    return sum(end - start for start, end in marks)


def check(bootstrap: str, topic: str, rows: int) -> None:
    """Raise unless the broker holds that many records, for the figure would be worth nothing."""
    found = count(bootstrap, topic)
    if found != rows:
        raise RuntimeError(f"Kafka holds {found} of {rows} records")


def producer(bootstrap: str, topic: str, **settings: object) -> Producer:
    """A producer that is connected and knows the topic already."""
    config = {"bootstrap.servers": bootstrap, "acks": "all", **QUEUE, **settings}
    made = Producer(config)
    made.list_topics(topic, timeout=10)
    return made


def consumer(bootstrap: str, topic: str, *, start: int, **settings: object) -> Consumer:
    """A consumer of all partitions from one logical offset on, without group coordination."""
    config = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    made = Consumer(config | settings)
    made.assign([TopicPartition(topic, partition, start) for partition in range(PARTITIONS)])
    return made


def fill(bootstrap: str, rows: int, *, times: int = 1) -> str:
    """A topic that holds the records of the data set, so many times."""
    topic = create(bootstrap)
    sender = producer(bootstrap, topic)
    records = list(zip(dataset.values(rows), dataset.keys(rows), strict=True))
    for _ in range(times):
        for at, (value, key) in enumerate(records):
            sender.produce(topic, value, key)
            if at % 1_000 == 0:
                sender.poll(0)
        sender.flush()
    check(bootstrap, topic, rows * times)
    return topic


def checked(message: Message) -> Message:
    """The message, unless it is an error."""
    error: KafkaError | None = message.error()
    if error:
        raise RuntimeError(str(error))
    return message
