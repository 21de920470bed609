"""What consumers of the tests get."""

from __future__ import annotations

from collections.abc import Sequence

from kmq_spark import openmessaging as oms

_TO_END: list[oms.PullConsumer | oms.PartitionConsumer] = []


def attached(
    settings: oms.KeyValue, queue: str = "q", topics: Sequence[str] = ()
) -> oms.PullConsumer:
    """A consumer of a queue."""
    consumer = oms.PullConsumer(settings)
    _TO_END.append(consumer)
    consumer.attach_queue(queue, topics)
    return consumer


def walking(settings: oms.KeyValue, name: str) -> oms.PartitionIterator:
    """An iterator over a partition of a topic or queue."""
    consumer = oms.PartitionConsumer(settings)
    _TO_END.append(consumer)
    return consumer.partition_iterator(name)


def end_all() -> None:
    """Shut down the consumers of a test."""
    while _TO_END:
        _TO_END.pop().shutdown()


def all_of(consumer: oms.PullConsumer) -> list[oms.BytesMessage]:
    """Everything up to the first poll that gives nothing."""
    return list(iter(consumer.poll, None))


def bodies(consumer: oms.PullConsumer) -> list[bytes | None]:
    """The bodies of everything."""
    return [message.get_body() for message in all_of(consumer)]
