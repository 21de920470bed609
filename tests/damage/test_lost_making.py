"""Topics of which the commit that made them can't be read: what else is readable stays so.

Finds: whole commits and segments that a repair gives up with the commit that made their topic.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.store import Store
from kmq_storage import paths
from tests.damage.bucket import flip, store_in
from tests.damage.sweep import Harm
from tests.damage.test_repair import harmed
from tests.support.engine import Sent, send_rows
from tests.support.memory_bucket import MemoryBucket


class Place:
    """A store that is opened again and again, and whose commits can be damaged."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._bucket = MemoryBucket("memory-bucket://lost-making")

    def open(self) -> AbstractContextManager[Store]:
        """The store."""
        if self._folder is None:
            return store_in(self._bucket)
        return kmq.open(self._folder, maintenance=False)

    def damage(self, lsn: int) -> None:
        """Have a commit that can't be read."""
        if self._folder is None:
            flip(self._bucket, paths.commit_object(lsn))
            return
        (log,) = (self._folder / "log").glob("0*.log")
        at = log.read_bytes().index(b"KMQ1\0\0\x80\0" + lsn.to_bytes(8, "little"))
        harmed(self._folder, Harm(f"log/{log.name}", at + 40, 1))

    def damage_value(self, value: bytes) -> None:
        """Have a record batch that isn't as it was written."""
        for name, body in self._bucket.objects.items():
            self._bucket.objects[name] = body.replace(value, value[::-1])

    def lose_pages(self) -> None:
        """Have no page, and no segment that one can be made from."""
        lost = [each for each in self._bucket.objects if each.startswith(("pages", "segments"))]
        self._bucket.delete(*lost)


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path if request.param == "disk" else None)


def _lsn(store: Store) -> int:
    return store.log.refresh().lsn


def _send(store: Store, topic: str, *values: object, partition: int = 0) -> int:
    """The LSN of the commit."""
    with store.producer(linger=1) as producer:
        sent = [producer.send(topic, value, partition=partition) for value in values]
        producer.flush()
        assert [each.result(10).partition for each in sent] == [partition] * len(values)
    return _lsn(store)


def _values(store: Store, topic: str, partition: int = 0) -> list[bytes]:
    found: list[bytes] = store.read(topic, partitions=[partition]).read_all()["value"].to_pylist()
    return found


def _only_topic(store: Store) -> str:
    (topic,) = store.topics()
    return topic.name


def test_records_in_whole_commits_stay_readable_in_a_topic_that_is_made_again(place: Place):
    with place.open() as store:
        store.create_topic("made", partitions=3)
        made = _lsn(store)
        _send(store, "made", b"0", b"1")
        _send(store, "made", b"2", partition=1)
    place.damage(made)
    with place.open() as store:
        report = store.repair(drop_damaged=True)
        assert report.ok
        name = _only_topic(store)
        assert any(name in note and "default settings" in note for note in report.notes)
        assert _values(store, name) == [b"0", b"1"]
        assert _values(store, name, partition=1) == [b"2"]
        _send(store, name, b"3", partition=1)
        store.maintain()
    with place.open() as store:
        assert store.verify(deep=True).ok
        assert _values(store, name, partition=1) == [b"2", b"3"]


def test_a_lost_page_keeps_no_repair_from_a_topic_without_a_name():
    place = Place(None)
    with place.open() as store:
        store.create_topic("made")
        made = _lsn(store)
        _send(store, "made", b"0")
    place.damage(made)
    with place.open() as store:
        assert store.repair(drop_damaged=True).ok
        store.seal()
        store.checkpoint()
    place.lose_pages()
    with place.open() as store:
        assert {each.file[:6] for each in store.repair().damage} == {"pages/"}
        assert store.repair(drop_damaged=True).ok


def test_records_in_a_segment_stay_readable_though_all_their_commits_are_lost(place: Place):
    with place.open() as store:
        store.create_topic("made", partitions=2)
        sent = [_lsn(store), _send(store, "made", b"0", b"1", partition=1)]
        store.seal()
        _send(store, "made", b"2", partition=1)
    for lsn in range(sent[0], sent[1] + 1):
        place.damage(lsn)
    with place.open() as store:
        report = store.repair(drop_damaged=True)
        assert report.ok
        assert any("it is made again, as its files say" in note for note in report.notes)
        assert _values(store, "made", partition=1) == [b"0", b"1", b"2"]
        assert store.describe_topic("made").rows == 3
        assert store.verify(deep=True).ok


def test_of_a_known_topic_too_what_a_segment_has_is_not_given_up_with_its_commits(place: Place):
    with place.open() as store:
        store.create_topic("t")
        _send(store, "t", b"0")
        lost = _send(store, "t", b"1")
        _send(store, "t", b"2")
        store.seal()
        _send(store, "t", b"3")
    place.damage(lost)
    with place.open() as store:
        assert store.repair(drop_damaged=True).ok
        assert _values(store, "t") == [b"0", b"1", b"2", b"3"]
        assert store.verify(deep=True).ok


def test_partitions_of_which_every_commit_is_lost_give_no_offset_out_again(place: Place):
    with place.open() as store:
        store.create_topic("made", partitions=2)
        made = _lsn(store)
        lost = _send(store, "made", b"lost", b"lost", partition=0)
        _send(store, "made", b"kept", partition=1)
    for lsn in range(made, lost + 1):
        place.damage(lsn)
    with place.open() as store:
        assert store.repair(drop_damaged=True).ok
        name = _only_topic(store)
        with store.producer() as producer:
            assert producer.send(name, b"new", partition=0).result(10).offset >= 2


def test_typed_records_are_read_under_the_schema_that_segments_tell(place: Place):
    schema = pa.schema([("price", pa.int64())])
    with place.open() as store:
        store.create_topic("typed", schema=schema)
        made = _lsn(store)
        _send(store, "typed", {"price": 1})
        store.seal()
        _send(store, "typed", {"price": 2})
    place.damage(made)
    with place.open() as store:
        assert store.repair(drop_damaged=True).ok
        assert store.read("typed").read_all()["price"].to_pylist() == [1, 2]
        _send(store, "typed", {"price": 3})
        assert store.verify(deep=True).ok


def test_typed_records_whose_schema_nobody_tells_go_and_the_report_names_them(place: Place):
    with place.open() as store:
        store.create_topic("typed", schema=pa.schema([("price", pa.int64())]))
        made = _lsn(store)
        _send(store, "typed", {"price": 1})
    place.damage(made)
    with place.open() as store:
        assert not store.repair().ok
        report = store.repair(drop_damaged=True)
        assert report.ok
        assert any("-0: offsets 0 to 0 were cut out" in note for note in report.notes)


def test_a_topic_whose_making_is_lost_can_be_deleted_by_who_knows_it():
    place = Place(None)
    with place.open() as knows:
        knows.create_topic("made")
        made = _lsn(knows)
        _send(knows, "made", b"0")
        place.damage(made)
        with place.open() as store:
            assert store.repair(drop_damaged=True).ok
        knows.delete_topic("made")
        with place.open() as store:
            assert store.topics() == []


def test_no_topic_or_queue_is_made_over_one_that_damaged_commits_may_have_made(place: Place):
    with place.open() as store:
        queues = store.keyed_queues("inbox")
        made = [_lsn(store)]
        store.create_queue("work")
        made.append(_lsn(store))
        queues.put("a", b"0").result(10)
        store.seal()
    for lsn in made:
        place.damage(lsn)
    with place.open() as store:
        for make in (
            lambda: store.keyed_queues("inbox"),
            lambda: store.create_topic("inbox"),
            lambda: store.create_queue("work"),
        ):
            with pytest.raises(kmq.CorruptionError, match=r"^(Topic|Queue)\[(inbox|work)\] is not"):
                make()
        assert store.repair(drop_damaged=True).ok
        assert store.keyed_queues("inbox").get("a", 0, 9) == [b"0"]
        store.create_queue("work")


def test_of_staged_files_that_would_tell_a_topics_name_one_may_be_gone(place: Place):
    """What is gone tells nothing; the next one does."""
    with place.open() as store:
        store.create_topic("made", partitions=2)
        made = _lsn(store)
        for partition in range(2):
            rows = [Sent(None, b"staged %d" % partition)]
            send_rows(store.log, "made", rows, partition=partition, staged=True)
        (first, *_) = store.log.refresh().find_topic("made").index(0).rows(0, 1)
        store.log.files.remove(first.path((store.describe_topic("made").topic_id.bytes, 0)))
    place.damage(made)
    with place.open() as store:
        assert store.repair(drop_damaged=True).ok
        assert _only_topic(store) == "made"
        assert _values(store, "made", partition=1) == [b"staged 1"]


def test_a_trim_of_records_whose_commit_is_lost_counts_none_of_those_that_are_left():
    place = Place(None)
    with place.open() as store:
        store.create_topic("t")
        lost = _send(store, "t", b"0", b"1", b"2")
        store.trim("t", {0: 2})
        _send(store, "t", b"damaged later")
        _send(store, "t", b"4")
    place.damage(lost)
    place.damage_value(b"damaged later")
    with place.open() as store:
        assert store.repair(drop_damaged=True).ok
        assert store.describe_topic("t").rows == 1
        assert store.read("t", start={0: 4}).read_all()["value"].to_pylist() == [b"4"]


def test_a_partition_of_which_only_a_trim_is_left_does_not_end_before_it(place: Place):
    with place.open() as store:
        store.create_topic("made", partitions=2)
        made = _lsn(store)
        lost = _send(store, "made", b"0", b"1", b"2", partition=1)
        store.trim("made", {1: 3})
        _send(store, "made", b"0")
    for lsn in range(made, lost + 1):
        place.damage(lsn)
    with place.open() as store:
        assert store.repair(drop_damaged=True).ok
        with store.producer() as producer:
            sent = producer.send(_only_topic(store), b"new", partition=1).result(10)
        assert sent.offset >= 3


def test_who_knows_of_a_partition_that_nothing_else_tells_of_begins_anew_when_others_write_there():
    place = Place(None)
    with place.open() as knows:
        knows.create_topic("made", partitions=3)
        made = _lsn(knows)
        lost = _send(knows, "made", b"lost", partition=1)
        _send(knows, "made", b"kept")
        for lsn in range(made, lost + 1):
            place.damage(lsn)
        with place.open() as store:
            assert store.repair(drop_damaged=True).ok
            _send(knows, "made", b"beside", partition=2)
            name = _only_topic(store)
            _send(store, name, b"again", partition=1)
        assert _values(knows, name, partition=1) == [b"again"]
        _send(knows, name, b"more", partition=1)
        assert _values(knows, name, partition=1) == [b"again", b"more"]
        assert _values(knows, name, partition=2) == [b"beside"]
