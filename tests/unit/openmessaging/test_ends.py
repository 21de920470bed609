"""Consumers that were shut down: what they had read and nobody got."""

from __future__ import annotations

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from tests.unit.openmessaging.received import attached, bodies


def test_what_was_read_ahead_at_shutdown_is_the_next_consumers_alone(
    settings: oms.KeyValue, producer: oms.Producer
):
    for body in (b"1", b"2", b"3"):
        producer.send(producer.create_bytes_message_to_topic("t", body))
    producer.flush()
    first = attached(settings, topics=["t"])
    assert first.poll().get_body() == b"1"  # type: ignore[union-attr]
    first.shutdown()
    with pytest.raises(kmq.ClosedError):
        first.poll()
    assert bodies(attached(settings)) == [b"2", b"3"]
