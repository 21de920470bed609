"""How many bytes of messages a pull consumer reads ahead of its calls.

Finds: a read that goes by counts alone, and holds gigabytes of large messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_spark.openmessaging import pull
from tests.unit.openmessaging.received import attached

MOST, LARGE, MESSAGES = 1_000_000, 20_000, 100
TOPICS = ["t", "u", "v"]


class Reads:
    """The bytes of each read of a pull consumer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        take = oms.PullConsumer._take
        monkeypatch.setattr(pull, "_BYTES", MOST)
        monkeypatch.setattr(
            oms.PullConsumer, "_take", lambda consumer, some: take(consumer, self._noted(some))
        )

    def _noted(self, slices: pull.Slices) -> pull.Slices:
        self.sizes.append(sum(part.batch.nbytes for part in slices))
        return slices


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def _send(settings: oms.KeyValue, topics: Sequence[str], size: int, messages: int) -> None:
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as sender:
        for topic in topics:
            store.create_topic(topic)
            sender.send_batch(topic, [topic.encode() * size] * messages)


def _topics(consumer: oms.PullConsumer) -> str:
    """The topics of all messages as they come."""
    return "".join((each.get_body() or b"")[:1].decode() for each in iter(consumer.poll, None))


def test_of_large_messages_few_are_read_ahead_and_all_come_in_turns(
    settings: oms.KeyValue, reads: Reads
):
    _send(settings, TOPICS, LARGE, MESSAGES)
    came = _topics(attached(settings, "q", TOPICS))
    assert came.startswith("tuv" * 10)
    assert sorted(came) == sorted("tuv" * MESSAGES)
    assert MOST // 2 < max(reads.sizes) < MOST + LARGE


def test_messages_larger_than_what_is_read_ahead_come_too(settings: oms.KeyValue, reads: Reads):
    _send(settings, TOPICS, MOST, 3)
    assert sorted(_topics(attached(settings, "q", TOPICS))) == sorted("tuv" * 3)
    assert max(reads.sizes) < 2 * MOST


def test_topics_of_small_messages_leave_turns_to_large_ones(settings: oms.KeyValue, reads: Reads):
    _send(settings, ["t"], LARGE, MESSAGES)
    _send(settings, ["u"], 1, 40 * MESSAGES)
    came = _topics(attached(settings, "q", ["t", "u"]))
    assert len(came) == 41 * MESSAGES
    assert came[: 30 * MESSAGES].count("t") == MESSAGES
