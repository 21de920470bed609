"""Topics of which a repair cut messages out: told, once by who can't seek, and gone on behind."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.log.binding.binding import Unit
from tests.unit.openmessaging.received import attached, bodies, walking

KEPT = [b"%d" % n for n in range(12) if not 3 <= n < 6]


@pytest.fixture(autouse=True)
def repaired(settings: oms.KeyValue, producer: oms.Producer) -> None:
    """A topic with messages 0 to 11, without 3 to 5."""
    for number in range(12):
        producer.send(producer.create_bytes_message_to_topic("t", b"%d" % number))
    producer.flush()
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        topic, lsn = store.describe_topic("t").topic_id.bytes, store.log.refresh().lsn
        gap = GapEntry(topic, 0, 3, 6, 3, 3, lsn, "damaged")  # as a repair does it
        store.log.commit([Unit((gap,))])


@pytest.mark.parametrize("acknowledges", [False, True])
def test_who_polls_is_told_once_and_the_next_consumer_goes_on_behind_the_loss(
    settings: oms.KeyValue, acknowledges: bool
):
    consumer = attached(settings, "q", ["t"])
    first = [consumer.poll() for _ in range(3)]
    assert [each.get_body() for each in first if each] == KEPT[:3]
    if acknowledges:
        for message in first:
            assert message is not None
            consumer.ack(message.headers().get_string("MessageId"))
    with pytest.raises(kmq.DataLossError, match="offsets 3 to 5 were lost"):
        consumer.poll()
    behind = consumer.poll()
    assert behind is not None
    assert behind.get_body() == b"6"
    consumer.shutdown()
    assert bodies(attached(settings)) == (KEPT[3:] if acknowledges else KEPT[4:])


def test_a_listener_gets_what_stands_behind_a_loss(
    settings: oms.KeyValue, caplog: pytest.LogCaptureFixture
):
    got: SimpleQueue[bytes | None] = SimpleQueue()
    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t"], lambda message, _: got.put(message.get_body()))
        assert [got.get(timeout=30) for _ in KEPT] == KEPT
    assert "offsets 3 to 5 were lost" in caplog.text


def test_an_iterator_gives_all_up_to_a_loss_in_both_directions_and_stays_there_until_it_seeks(
    settings: oms.KeyValue,
):
    walk = walking(settings, "t")

    def walked(step: str, count: int) -> list[bytes | None]:
        return [getattr(walk, step)().get_body() for _ in range(count)]

    assert walked("next", 3) == KEPT[:3]
    for _ in range(2):
        with pytest.raises(kmq.DataLossError, match="go on at offset 6"):
            walk.next()
    walk.seek_by_offset(6)
    assert walked("next", 6) == KEPT[3:]
    assert walked("previous", 6) == KEPT[:2:-1]
    for _ in range(2):
        with pytest.raises(kmq.DataLossError, match="offsets 3 to 5"):
            walk.previous()
    walk.seek_by_offset(3)
    assert walked("previous", 3) == KEPT[2::-1]
