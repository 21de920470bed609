"""Opening stores, topics, groups, offsets by time, and the commit log as users see it.

Finds: settings that are lost or silently changed, instants that are off by one record, and
descriptions that do not fit what was stored.
"""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.unit.client.stored import lsn, values

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_store_is_made_when_it_is_missing_and_found_again(tmp_path: Path):
    folder = tmp_path / "deep" / "down" / "store"
    with kmq.open(folder) as store:
        store.create_topic("t")
    for url in (folder, str(folder), f"file://{folder}", f"{folder}/", os.fspath(folder) + "/."):
        with kmq.open(url, create=False) as store:
            assert [topic.name for topic in store.topics()] == ["t"]


def test_a_missing_store_is_not_found_by_name(tmp_path: Path):
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(kmq.NotFoundError, match=r"Store\[.*missing\] doesn't exist\."):
            kmq.open(tmp_path / "missing", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_is_fixed_at_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with kmq.open("data/store") as store:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.create_topic("t")
        with store.producer() as producer:
            producer.send("t", b"v").result(10)
        assert values(store, "t") == [b"v"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_path_with_odd_characters_is_a_path(tmp_path: Path):
    folder = tmp_path / "ünï cødé #?%20&;"
    with kmq.open(folder) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send_batch("t", [b"x" * 900_000] * 3, partition=0).result(10)
        assert len(values(store, "t")) == 3


def test_a_store_in_memory_is_one_per_name():
    name = uuid.uuid4().hex
    with kmq.open(f"memory://{name}") as first, kmq.open(f"memory://{name}") as second:
        first.create_topic("t")
        assert [topic.name for topic in second.topics()] == ["t"]
        with kmq.open(f"memory://{name}-other") as other:
            assert other.topics() == []
    with kmq.open(f"memory://{name}") as again:
        assert [topic.name for topic in again.topics()] == ["t"]


def test_a_read_only_store_refuses_every_write_and_reads(store: kmq.Store, store_url: str):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send("t", b"v").result(10)
    before = lsn(store)
    with kmq.open(store_url, read_only=True) as reader:
        assert values(reader, "t") == [b"v"]
        assert reader.read("t").read_all().num_rows == 1
        assert reader.groups() == []
        for write in (
            reader.producer,
            lambda: reader.create_topic("new"),
            lambda: reader.delete_topic("t"),
            lambda: reader.alter_topic("t", capacity=5),
            lambda: reader.add_partitions("t", 2),
            lambda: reader.consumer("g", topics=["t"]),
            lambda: reader.set_group_offsets("g", {"t": {0: 0}}),
            lambda: reader.pin(60.0),
        ):
            with pytest.raises(kmq.IllegalStateError):
                write()
        with store.producer() as producer:
            producer.send("t", b"later").result(10)
        assert values(reader, "t") == [b"v", b"later"]
    assert lsn(store) == before + 1


def test_a_closed_store_says_so_and_closes_again_in_peace(store: kmq.Store):
    store.create_topic("t")
    producer, consumer = store.producer(), store.consumer(topics=["t"])
    future = producer.send("t", b"v")
    store.close()
    store.close()
    assert future.result(0).offset == 0
    for call in (
        store.topics, store.groups, lambda: store.create_topic("x"), lambda: store.offsets("t"),
        lambda: store.read("t"), store.commits, store.producer, store.consumer,
        lambda: store.consumer("g"), consumer.poll, lambda: producer.send("t", b"v"),
        lambda: producer.send_batch("t", [b"v"]), lambda: store.set_group_offsets("g", {}),
    ):  # fmt: skip
        with pytest.raises(kmq.ClosedError):
            call()


def test_a_topic_is_described_as_it_was_made(store: kmq.Store):
    made = store.create_topic(
        "t", partitions=3, retention=timedelta(days=7), retention_bytes=10**9, cleanup="compact",
        capacity=1000, max_record_bytes=5_000, uniq_window=60,
    )  # fmt: skip
    assert made == store.describe_topic("t") == store.topics()[0]
    assert (made.name, made.partitions, made.rows, made.bytes) == ("t", 3, 0, 0)
    assert isinstance(made.topic_id, uuid.UUID)
    assert made.offsets == {0: (0, 0), 1: (0, 0), 2: (0, 0)} == store.offsets("t")
    settings = made.settings
    assert (settings.retention, settings.retention_bytes) == (7 * 86_400, 10**9)
    assert (settings.cleanup, settings.capacity) == ("compact", 1000)
    assert (settings.max_record_bytes, settings.uniq_window) == (5_000, 60)


def test_rows_bytes_and_offsets_count_what_is_stored(store: kmq.Store):
    store.create_topic("t", partitions=2)
    with store.producer() as producer:
        producer.send_batch("t", [b"12345"] * 10, [b"123"] * 10, partition=1)
        producer.send("t", b"1", partition=0, headers={"ab": b"cd"}, properties={"p": 1})
    info = store.describe_topic("t")
    assert info.offsets == {0: (0, 1), 1: (0, 10)}
    assert (info.rows, info.bytes) == (11, 80 + 1 + 4 + 9)


def test_a_second_create_keeps_the_first_and_its_data(store: kmq.Store):
    first = store.create_topic("t", partitions=2, capacity=100)
    with store.producer() as producer:
        producer.send("t", b"v").result(10)
    before = lsn(store)
    assert store.create_topic("t", partitions=2, capacity=100).topic_id == first.topic_id
    with pytest.warns(kmq.KmqWarning, match="partitions.*capacity") as caught:
        again = store.create_topic("t", partitions=5, capacity=7)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert (again.topic_id, again.partitions, again.rows) == (first.topic_id, 2, 1)
    with pytest.raises(kmq.AlreadyExistsError):
        store.create_topic("t", partitions=2, capacity=100, exist_ok=False)
    assert lsn(store) == before


def test_topics_are_listed_by_name_enlarged_altered_and_deleted(store: kmq.Store):
    for name in ("b", "a", "C"):
        store.create_topic(name)
    assert [topic.name for topic in store.topics()] == ["C", "a", "b"]
    assert store.add_partitions("a", 4).partitions == 4
    assert store.add_partitions("a", 4).partitions == 4
    with pytest.raises(kmq.InvalidRequestError):
        store.add_partitions("a", 3)
    altered = store.alter_topic("a", capacity=5, retention=timedelta(hours=1))
    assert (altered.settings.capacity, altered.settings.retention) == (5, 3600)
    assert store.alter_topic("a", capacity=None).settings.capacity is None
    old = store.describe_topic("a").topic_id
    store.delete_topic("a")
    with pytest.raises(kmq.NotFoundError, match=r"Topic\[a\] doesn't exist\."):
        store.describe_topic("a")
    assert store.create_topic("a").topic_id != old


def test_offsets_for_time_give_the_first_record_at_or_after(store: kmq.Store):
    store.create_topic("t", partitions=3)
    with store.producer() as producer:
        for second in (1, 2, 3, 3, 5):
            producer.send("t", b"v", partition=0, timestamp=T0 + timedelta(seconds=second))
        for second in (9, 2, 7):  # out of order: the first one at or after counts
            producer.send("t", b"v", partition=1, timestamp=T0 + timedelta(seconds=second))
            producer.flush()
    for second, expected in (
        (0, {0: 0, 1: 0, 2: None}),
        (2, {0: 1, 1: 0, 2: None}),
        (3.000001, {0: 4, 1: 0, 2: None}),
        (5, {0: 4, 1: 0, 2: None}),
        (9, {0: None, 1: 0, 2: None}),
        (10, {0: None, 1: None, 2: None}),
    ):
        assert store.offsets_for_time("t", T0 + timedelta(seconds=second)) == expected
    india = timezone_of_india(T0 + timedelta(seconds=2))
    assert store.offsets_for_time("t", india) == {0: 1, 1: 0, 2: None}


def timezone_of_india(when: datetime) -> datetime:
    """The same instant, written otherwise."""
    from datetime import timezone

    return when.astimezone(timezone(timedelta(hours=5, minutes=30)))


@pytest.mark.parametrize("together", [False, True])
def test_the_age_of_what_is_unread_is_not_that_of_what_was_read_before_it(
    store: kmq.Store, together: bool
):
    store.create_topic("t")
    now = datetime.now(UTC)
    times = [now - timedelta(hours=hours) for hours in (24, 12, 0)]
    with store.producer() as producer:
        if together:
            producer.send_batch("t", [b"v"] * 3, timestamps=times)
        else:
            for when in times:
                producer.send("t", b"v", timestamp=when).result(10)
    for seal in (False, True):
        if seal:
            store.seal()
        for offset, hours in enumerate((24, 12, 0)):
            store.set_group_offsets("g", {"t": {0: offset}})
            age = store.describe_group("g").lag_seconds["t"][0]
            assert hours * 3600 <= age + 1 < hours * 3600 + 60


def test_groups_can_be_set_copied_described_and_deleted(store: kmq.Store):
    store.create_topic("t", partitions=2)
    with store.producer() as producer:
        for second in range(10):
            when = T0 + timedelta(seconds=second)
            producer.send("t", b"12345", partition=second % 2, timestamp=when)
    store.set_group_offsets("g", {"t": {0: 2}})
    assert store.describe_group("g").committed == {"t": {0: 2}}
    info = store.describe_group("g")
    assert (info.end, info.lag) == ({"t": {0: 5, 1: 5}}, {"t": {0: 3, 1: 5}})
    assert info.lag_bytes == {"t": {0: 15, 1: 25}}
    assert info.lag_seconds["t"][0] > 0
    for offsets, expected in (
        ("latest", {0: 5, 1: 5}),
        ("earliest", {0: 0, 1: 0}),
        (T0 + timedelta(seconds=3), {0: 2, 1: 1}),
    ):
        store.set_group_offsets("g", offsets)
        assert store.describe_group("g").committed == {"t": expected}
    store.set_group_offsets("new", "latest", topics=["t"])
    assert store.describe_group("new").lag == {"t": {0: 0, 1: 0}}
    assert store.describe_group("new").lag_seconds == {"t": {0: 0.0, 1: 0.0}}
    store.copy_group("new", "copy")
    assert [group.name for group in store.groups()] == ["copy", "g", "new"]
    assert store.describe_group("copy").committed == {"t": {0: 5, 1: 5}}
    store.delete_group("g")
    for call in (store.describe_group, store.delete_group):
        with pytest.raises(kmq.NotFoundError, match=r"Group\[g\] doesn't exist\."):
            call("g")
    with pytest.raises(kmq.NotFoundError, match=r"Group\[g\]"):
        store.copy_group("g", "h")


def test_group_offsets_stay_inside_the_log_and_the_topic(store: kmq.Store):
    store.create_topic("t")
    before = lsn(store)
    for wrong, error in (
        ({"t": {0: 1}}, kmq.OffsetOutOfRangeError),
        ({"t": {0: -1}}, kmq.OffsetOutOfRangeError),
        ({"t": {1: 0}}, kmq.NotFoundError),
        ({"missing": {0: 0}}, kmq.NotFoundError),
        ("latest", kmq.NotFoundError),
    ):
        with pytest.raises(error):
            store.set_group_offsets("g", wrong)
    assert lsn(store) == before
    assert store.groups() == []


def test_a_group_with_a_live_member_cannot_be_changed_from_outside(store: kmq.Store):
    store.create_topic("t")
    with store.consumer("g", topics=["t"]):
        for call in (
            lambda: store.set_group_offsets("g", {"t": {0: 0}}),
            lambda: store.delete_group("g"),
            lambda: store.copy_group("g", "g"),
        ):
            with pytest.raises(kmq.IllegalStateError):
                call()
        store.copy_group("g", "h")
    store.set_group_offsets("g", {"t": {0: 0}})
    store.delete_group("g")


def test_deleting_a_topic_forgets_every_groups_offsets_in_it(store: kmq.Store):
    store.create_topic("t")
    store.set_group_offsets("g", {"t": {0: 0}})
    store.delete_topic("t")
    assert store.describe_group("g").committed == {}


def test_commits_are_contiguous_in_time_order_and_start_anywhere(store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        for _ in range(5):
            producer.send("t", b"v").result(10)
    found = list(store.commits())
    assert [commit.lsn for commit in found] == list(range(1, lsn(store) + 1))
    assert all(before.time < after.time for before, after in pairwise(found))
    assert found[0].time.tzinfo is UTC
    assert all(commit.entries for commit in found)
    assert [commit.lsn for commit in store.commits(4)] == list(range(4, lsn(store) + 1))
    assert list(store.commits(lsn(store) + 1)) == []
