"""Iterators over a partition: in both directions, sought by offset and by time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_storage.paths import log_file
from tests.support.damage import flip
from tests.support.storage import open_folder
from tests.unit.openmessaging.received import attached, walking


@pytest.fixture
def walk(settings: oms.KeyValue, producer: oms.Producer) -> oms.PartitionIterator:
    """Over a topic with the messages 0 to 1199."""
    for number in range(1200):
        producer.send(producer.create_bytes_message_to_topic("t", b"%d" % number))
    producer.flush()
    return walking(settings, "t")


def test_it_goes_forwards_and_backwards(walk: oms.PartitionIterator):
    assert [each.get_body() for each in walk] == [b"%d" % n for n in range(1200)]
    assert not walk.has_next()
    assert walk.next() is None
    back = iter(walk.previous, None)
    assert [each.get_body() for each in back] == [b"%d" % n for n in reversed(range(1200))]
    assert not walk.has_previous()
    assert walk.previous() is None


def test_a_topic_that_is_made_again_is_walked_from_its_beginning(
    settings: oms.KeyValue, producer: oms.Producer, walk: oms.PartitionIterator
):
    walk.seek_by_offset(3, persistent=True)
    assert walk.next().get_body() == b"3"  # type: ignore[union-attr] # and those behind are read
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.delete_topic("t")
        store.create_topic("t")
        with store.producer() as sender:
            sender.send_batch("t", [b"new %d" % n for n in range(9)]).result()
    assert [each.get_body() for each in walk] == [b"new %d" % n for n in range(9)]
    assert walk.previous().get_body() == b"new 8"  # type: ignore[union-attr]


def test_records_with_columns_of_their_own_are_no_messages(
    settings: oms.KeyValue, walk: oms.PartitionIterator
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as sender:
        store.delete_topic("t")
        store.create_topic("t", schema=pa.schema([("a", pa.int64())]))
        sender.send("t", {"a": 1}).result()
    for call in (walk.next, walk.has_previous, lambda: walking(settings, "t")):
        with pytest.raises(kmq.InvalidRequestError, match=r"topic t has a schema.*store\.consumer"):
            call()


def test_it_seeks_offsets_and_stays_inside(walk: oms.PartitionIterator):
    assert (walk.first_offset(), walk.last_offset(), walk.current_offset()) == (0, 1199, 0)
    walk.seek_by_offset(700)
    assert walk.next().get_body() == b"700"  # type: ignore[union-attr]
    walk.seek_by_offset(-5)
    assert walk.current_offset() == 0
    walk.seek_by_offset(9999)
    assert walk.next().get_body() == b"1199"  # type: ignore[union-attr]


def test_it_seeks_the_time_at_which_a_message_was_stored(walk: oms.PartitionIterator):
    walk.seek_by_offset(600)
    stored = walk.next().headers().get_long("StoreTimestamp")  # type: ignore[union-attr]
    walk.seek_by_time(stored)
    assert walk.next().headers().get_long("StoreTimestamp") == stored  # type: ignore[union-attr]
    walk.seek_by_time(0)
    assert walk.current_offset() == 0
    walk.seek_by_time(stored + 86_400_000)
    assert walk.current_offset() == 1199


def test_the_place_that_was_persisted_is_where_the_next_one_begins(
    settings: oms.KeyValue, walk: oms.PartitionIterator
):
    walk.seek_by_offset(300, persistent=True)
    walk.next()
    again = walking(settings, "t:0")
    assert again.next().get_body() == b"300"  # type: ignore[union-attr]


def test_a_place_that_was_persisted_moves_no_queue_whatever_its_name(
    settings: oms.KeyValue, walk: oms.PartitionIterator
):
    walk.seek_by_offset(1198, persistent=True)
    consumer = attached(settings, "partitions", ["t"])
    assert consumer.poll().get_body() == b"0"  # type: ignore[union-attr]


def test_it_passes_over_what_was_compacted_away(settings: oms.KeyValue, producer: oms.Producer):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.create_topic("c", cleanup="compact")
        for number in range(6):
            message = producer.create_bytes_message_to_topic("c", b"%d" % number)
            producer.send(message.put_headers("SearchKey", "even" if number % 2 == 0 else number))
        producer.flush()
        store.compact("c")
    there = [b"1", b"3", b"4", b"5"]
    walk = walking(settings, "c")
    assert [each.get_body() for each in walk] == there
    assert [each.get_body() for each in iter(walk.previous, None)] == there[::-1]


def test_what_was_trimmed_is_not_gone_through(
    settings: oms.KeyValue, walk: oms.PartitionIterator, monkeypatch: pytest.MonkeyPatch
):
    walk.next()
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.trim("t", {0: 900})
    reads = list[int]()
    read = kmq.Store.read
    monkeypatch.setattr(kmq.Store, "read", lambda *a, **k: reads.append(1) or read(*a, **k))
    assert (walk.has_previous(), walk.current_offset()) == (False, 900)
    assert walk.next().get_body() == b"900"  # type: ignore[union-attr]
    assert len(reads) == 1
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.trim("t", {0: 1200})
    assert (walk.has_next(), walk.next(), walk.last_offset()) == (False, None, 1200)
    walk.persist()


def test_what_is_trimmed_while_it_reads_takes_nothing_behind_it_along(
    settings: oms.KeyValue, walk: oms.PartitionIterator, monkeypatch: pytest.MonkeyPatch
):
    def trimmed_meanwhile(self: oms.PartitionIterator, *where: int) -> oms.BytesMessage | None:
        with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
            store.trim("t", {0: 900})
        return message(self, *where)

    message = oms.PartitionIterator._message
    monkeypatch.setattr(oms.PartitionIterator, "_message", trimmed_meanwhile)
    assert walk.next().get_body() == b"900"  # type: ignore[union-attr]


def test_it_walks_what_was_sent_to_a_queue(settings: oms.KeyValue, producer: oms.Producer):
    producer.send(producer.create_bytes_message_to_queue("q", b"x"))
    producer.flush()
    found = walking(settings, "q").next()
    assert found is not None
    assert found.headers().get_string("Queue") == "q"


def test_a_partition_that_is_not_there_is_named(settings: oms.KeyValue, producer: oms.Producer):
    with pytest.raises(kmq.NotFoundError, match=r"Topic\[nope\] doesn't exist"):
        walking(settings, "nope")


def test_a_partition_whose_creation_is_damaged_is_not_said_to_be_missing(
    settings: oms.KeyValue, tmp_path: Path
):
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        store.create_topic("t")
        store.create_topic("u")
    (created,) = open_folder(tmp_path / "store")._past.frames(1, 1)
    flip(tmp_path / "store" / log_file(created.file), created.position + 130)
    with pytest.raises(kmq.CorruptionError, match=r"^Topic\[t\] is not known, but"):
        walking(settings, "t")


@pytest.mark.parametrize("name", ["t:x", "t:", "t:0:1", "t:-1", "t:\u00b2", 5, None, True])
def test_a_partition_that_is_no_number_is_refused(
    settings: oms.KeyValue, producer: oms.Producer, name: str
):
    with oms.PartitionConsumer(settings) as consumer:
        for call in (consumer.partition_iterator, producer.create_batch_to_partition):
            with pytest.raises(kmq.InvalidRequestError, match="topic:number"):
                call(name)


@pytest.mark.parametrize("bad", [True, 1.5, float("nan"), "5", None])
def test_places_that_are_no_numbers_are_refused(walk: oms.PartitionIterator, bad: int):
    for call in (walk.seek_by_offset, walk.seek_by_time):
        with pytest.raises(kmq.InvalidRequestError):
            call(bad)
    assert walk.current_offset() == 0


def test_times_outside_of_the_calendar_are_before_and_after_everything(
    walk: oms.PartitionIterator,
):
    walk.seek_by_time(10**30)
    assert walk.current_offset() == 1199
    walk.seek_by_time(-(10**30))
    assert walk.current_offset() == 0
