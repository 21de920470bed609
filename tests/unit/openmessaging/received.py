"""What consumers of the tests get."""

from __future__ import annotations

from collections.abc import Sequence

from kmq_spark import openmessaging as oms

_ATTACHED: list[oms.PullConsumer] = []


def attached(
    settings: oms.KeyValue, queue: str = "q", topics: Sequence[str] = ()
) -> oms.PullConsumer:
    """A consumer of a queue."""
    consumer = oms.PullConsumer(settings)
    _ATTACHED.append(consumer)
    consumer.attach_queue(queue, topics)
    return consumer


def end_all() -> None:
    """Shut down the consumers of a test."""
    while _ATTACHED:
        _ATTACHED.pop().shutdown()


def all_of(consumer: oms.PullConsumer) -> list[oms.BytesMessage]:
    """Everything up to the first poll that gives nothing."""
    return list(iter(consumer.poll, None))


def bodies(consumer: oms.PullConsumer) -> list[bytes | None]:
    """The bodies of everything."""
    return [message.get_body() for message in all_of(consumer)]
