"""Checkpoints: what is restored is what was replayed, damage is passed over, and handles go on."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

import kmq_spark as kmq
from kmq_spark.client.store import Store
from kmq_spark.errors import (
    CorruptionError,
    FormatVersionError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from kmq_storage import limits, paths
from kmq_storage.environment import SYSTEM
from kmq_storage.format.entries import (
    BatchIdEntry,
    GroupEntry,
    GroupOffsetsEntry,
    ProducerEntry,
    TopicEntry,
)
from kmq_storage.log.binding.binding import DuplicateCommitError, Unit
from kmq_storage.log.checkpoints import paging
from kmq_storage.log.checkpoints.checkpoint import (
    checkpoints,
    newest_checkpoint,
    publish_root,
    write_checkpoint,
    write_pages,
)
from kmq_storage.log.checkpoints.snapshot import check_known, snapshot
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.objects.memory import MemoryDisk
from tests.simulation.collection_mutants import never_begins_anew
from tests.support.engine import Sent, files_below, open_engine, rows_of, send_rows, unit_of_rows
from tests.support.failing_disk import FailingDisk

ROWS = [Sent(b"k", b"v%d" % n, n) for n in range(10)]


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def store(disk: MemoryDisk) -> Store:
    store = open_engine(disk)
    store.create_topic("t", partitions=2)
    return store


def _everything(store: Store) -> None:
    log = store.log
    topic = log.refresh().topic("t").id
    send_rows(log, "t", ROWS)
    store.seal()
    store.trim("t", {0: 2})
    for entry in (
        TopicEntry(b"g" * 16, "gone", 1, {}),
        TopicEntry(b"o" * 16, "other", 3, {"capacity": 7, "compression": "zstd"}),
        GroupEntry("g", 1, "member", "host", {"t": [0, 1]}),
        GroupOffsetsEntry("g", 1, topic, ((0, 3), (1, 0))),
        GroupEntry("left", 1, "", "", {}),
        ProducerEntry("b", 1, 5),
        ProducerEntry("a", 1, 5),
        ProducerEntry("b", 2, 0),
        BatchIdEntry("query", 8),
        BatchIdEntry("another", 3),
        BatchIdEntry("query", 9),
        TopicEntry(b"g" * 16, "gone", 0, {}),
    ):
        log.commit([Unit((entry,))])


def _damage(disk: MemoryDisk, path: str) -> None:
    raw = bytearray(disk.files[path])
    raw[len(raw) // 2] ^= 1
    disk.files[path] = bytes(raw)


def test_a_restored_state_is_the_replayed_one(store: Store, disk: MemoryDisk):
    _everything(store)
    replayed = store.log.refresh()
    store.checkpoint()
    found = newest_checkpoint(disk)
    assert found is not None
    for indexed in (True, False):
        state = found.state(disk, indexed=indexed)
        assert state.lsn == replayed.lsn
        assert state.groups == replayed.groups
        assert list(state.producers.items()) == list(replayed.producers.items())
        assert list(state.batches.items()) == list(replayed.batches.items())
        assert [topic.info() for topic in state.topics.values()] == [
            topic.info() for topic in replayed.topics.values()
        ]
    assert snapshot(found.state(disk, indexed=True)) == snapshot(replayed)


@pytest.mark.parametrize("where", ["store", "topic", "group", "part"])
def test_a_checkpoint_that_tells_of_what_is_not_known_is_refused_and_not_read_without_it(
    store: Store, disk: MemoryDisk, where: str
):
    _everything(store)
    store.checkpoint()
    found = newest_checkpoint(disk)
    assert found is not None
    members, parts = dict(found.members), dict(found.parts)
    of = {"store": members, "topic": members["topics"][0], "group": members["groups"]["g"]}
    of.get(where, parts)["from_the_future"] = b""
    with pytest.raises(FormatVersionError, match="from_the_future"):
        replace(found, members=members, parts=parts).state(disk, indexed=True)


def test_the_applications_that_wrote_last_are_remembered_across_checkpoints(
    store: Store, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "APPLICATIONS_REMEMBERED", 3)
    for version, application in enumerate(("z", "b", "c", "z", "a", "d")):
        store.log.commit([Unit((BatchIdEntry(application, version),))])
        store.checkpoint()
    for log in (store.log, open_engine(disk).log):
        assert {name: log.refresh().batch_version(name) for name in "abcdz"} == {
            "a": 4,
            "b": None,
            "c": None,
            "d": 5,
            "z": 3,
        }


def test_the_topics_that_were_deleted_last_are_remembered_across_checkpoints(
    store: Store, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "GONE_OFFSETS_REMEMBERED", 7)
    ids = []
    for name in "abc":
        store.create_topic(name, partitions=2)
        store.set_group_offsets("g", {name: {1: 0}})
        ids.append(store.log.state.topic(name).id)
        store.delete_topic(name)
        store.checkpoint()
    for log in (store.log, open_engine(disk).log):
        gone = log.refresh().gone
        assert [gone.find(topic_id) is not None for topic_id in ids] == [False, True, True]
        assert {name: each[0].groups["g"] for name, each in gone.left_by("g").items()} == {
            "b": {1: 0},
            "c": {1: 0},
        }
    assert gone.find(ids[2]).ends == (0, 0)


def test_what_binding_knows_survives_a_checkpoint(store: Store, disk: MemoryDisk):
    _everything(store)
    store.checkpoint()
    reopened = open_engine(disk)
    with pytest.raises(DuplicateCommitError):
        reopened.log.append([Unit((BatchIdEntry("query", 9),))])
    with pytest.raises(DuplicateCommitError):
        reopened.log.append([Unit((ProducerEntry("b", 2, 0),))])
    assert send_rows(reopened.log, "t", ROWS).entries[0].base_offset == 10


def test_a_second_checkpoint_of_one_lsn_is_not_written(store: Store, disk: MemoryDisk):
    send_rows(store.log, "t", ROWS)
    first = store.checkpoint()
    assert (first.lsn, first.pages) == (2, 1)
    before = files_below(disk, "")
    assert store.checkpoint().pages == 0
    assert files_below(disk, "") == before


def test_an_empty_store_has_no_checkpoint(disk: MemoryDisk):
    assert open_engine(disk).checkpoint().lsn == 0
    assert checkpoints(disk) == []


def test_a_damaged_newest_checkpoint_is_passed_over_and_written_anew(
    store: Store, disk: MemoryDisk, caplog: pytest.LogCaptureFixture
):
    send_rows(store.log, "t", ROWS)
    store.checkpoint()
    send_rows(store.log, "t", ROWS)
    store.checkpoint()
    newest = paths.checkpoint_file(*checkpoints(disk)[0])
    _damage(disk, newest)
    reopened = open_engine(disk)
    assert len(rows_of(reopened, "t")) == 20
    assert "is damaged; going on from the one before it" in caplog.text
    reopened.checkpoint()
    assert len(checkpoints(disk)) == 3
    assert len(rows_of(open_engine(disk), "t")) == 20


def test_racing_writers_of_one_checkpoint_do_no_harm(store: Store, disk: MemoryDisk):
    _everything(store)
    logs = [store.log, open_engine(disk).log]
    snapshots = [log.snapshot() for log in logs]
    for log, (state, cursor) in zip(logs, snapshots, strict=True):
        write_checkpoint(disk, state, cursor, SYSTEM.new_uuid, began=disk.now())
        assert len(rows_of(Store(log), "t")) == 8
    assert len(checkpoints(disk)) == 2
    assert len(rows_of(open_engine(disk), "t")) == 8


def test_a_checkpoint_that_took_too_long_is_not_published(
    store: Store, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
):
    send_rows(store.log, "t", ROWS)
    monkeypatch.setattr(limits, "COLLECT_GRACE", 0.0)
    with pytest.raises(UnavailableError, match="may have been collected"):
        checkpoint(store.log)
    assert checkpoints(disk) == []


def test_a_checkpoint_that_was_published_after_its_pages_were_collected_is_passed_over(
    store: Store, disk: MemoryDisk, caplog: pytest.LogCaptureFixture
):
    send_rows(store.log, "t", ROWS)
    store.checkpoint()
    whole, pages = checkpoints(disk), set(files_below(disk, paths.PAGE_FOLDER))
    send_rows(store.log, "t", ROWS)
    state, cursor = store.log.snapshot()
    root, _ = write_pages(disk, state, cursor, SYSTEM.new_uuid)
    for page in {*files_below(disk, paths.PAGE_FOLDER)} - pages:
        disk.remove(page)
    publish_root(disk, state.lsn, root, began=disk.now())
    assert len(rows_of(open_engine(disk), "t")) == 20
    assert "misses pages; going on from the one before it" in caplog.text
    store.collect(grace=0)
    assert checkpoints(disk) == whole


def test_only_pages_with_changes_are_written_again(
    store: Store, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(paging, "PAGE_ROWS", 8)
    monkeypatch.setattr(paging, "_PAGE_ROWS_MIN", 2)
    store.create_topic("many", partitions=50)
    for number in range(50):
        for _ in range(4):
            send_rows(store.log, "many", ROWS[:1], partition=number)
    assert store.checkpoint().pages >= 25
    for number in (3, 30):
        send_rows(store.log, "many", ROWS[:1], partition=number)
        assert 1 <= store.checkpoint().pages <= 3
    store.trim("many", {17: 4})
    assert store.checkpoint().pages <= 2
    assert store.checkpoint().pages == 0
    reopened = open_engine(disk)
    assert [len(rows_of(reopened, "many", n)) for n in (3, 17, 30, 49)] == [5, 0, 5, 4]


def test_pages_are_synced_together_as_far_as_8_mib_of_them_or_64_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(paging, "PAGE_ROWS", 8)
    disk = FailingDisk(tmp_path / "store")
    store = open_engine(disk, file_bytes=64 * 1024)
    store.create_topic("t", partitions=70 * 8)
    units = [unit_of_rows(store.log, "t", ROWS[:1], partition=n) for n in range(70 * 8)]
    for first in range(0, len(units), 80):
        store.log.commit(units[first : first + 80])
    files = len(disk.calls)
    assert store.checkpoint().pages == 70
    assert disk.calls[files:].count("stage synced") == 2
    assert len(rows_of(open_engine(disk), "t", 555)) == 1


def _collected(store: Store) -> None:
    """Seal, checkpoint and collect all there is, so that the log begins late."""
    for _ in range(30):
        send_rows(store.log, "t", ROWS)
    store.seal()
    store.checkpoint()
    store.collect(grace=0)
    assert next(store.commits()).lsn > 2


def test_a_reader_that_lagged_goes_on_from_the_checkpoint(store: Store, disk: MemoryDisk):
    lagging = open_engine(disk)
    send_rows(store.log, "t", ROWS)
    assert len(rows_of(lagging, "t")) == 10
    _collected(store)
    assert len(rows_of(lagging, "t")) == 310
    assert lagging.log.state.lsn == store.log.state.lsn


def test_a_writer_that_lagged_goes_on_from_the_checkpoint(store: Store, disk: MemoryDisk):
    lagging = open_engine(disk)
    send_rows(lagging.log, "t", ROWS)
    _collected(store)
    assert send_rows(lagging.log, "t", ROWS).entries[0].base_offset == 310


def test_commits_before_the_log_are_an_error_that_names_where_it_begins(store: Store):
    _collected(store)
    first = next(store.commits()).lsn
    with pytest.raises(OffsetOutOfRangeError, match=f"the log begins at commit {first}"):
        list(store.commits(1))
    assert next(store.commits(first)).lsn == first


def test_a_consumer_far_behind_reads_on_over_a_collection(store: Store, disk: MemoryDisk):
    lagging = open_engine(disk)
    send_rows(store.log, "t", ROWS)
    with lagging.consumer("g", topics=["t"]) as consumer:
        assert len(consumer.consume(4, timeout=0)) == 4
        _collected(store)
        offsets = [record.offset for record in consumer.consume(400, timeout=0)]
        assert offsets == list(range(4, 310))
        consumer.commit()
    assert store.describe_group("g").committed["t"][0] == 310


def test_a_handle_whose_pages_were_collected_looks_again(store: Store, disk: MemoryDisk):
    _collected(store)
    lagging = open_engine(disk)
    assert len(rows_of(lagging, "t")) == 300
    store.compact("t")
    _collected(store)
    for partition in (0, 1):
        assert rows_of(lagging, "t", partition) == rows_of(store, "t", partition)


def test_a_handle_that_applied_many_commits_begins_anew_at_a_newer_checkpoint(
    store: Store, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "REBASE_COMMITS", 10)
    handle = open_engine(disk)
    for _ in range(10):
        send_rows(store.log, "t", ROWS)
    assert handle.log.refresh().checkpoint_lsn == 0
    made = checkpoint(store.log).lsn
    assert handle.log.refresh().checkpoint_lsn == made


def test_that_no_handle_begins_anew_is_found_when_it_is_planted(
    store: Store, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
):
    never_begins_anew(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_handle_that_applied_many_commits_begins_anew_at_a_newer_checkpoint(
            store, disk, monkeypatch
        )


def test_a_lost_log_without_a_readable_checkpoint_is_damage_and_not_an_empty_store(
    store: Store, disk: MemoryDisk
):
    _collected(store)
    for lsn, digest in checkpoints(disk):
        _damage(disk, paths.checkpoint_file(lsn, digest))
    with pytest.raises(CorruptionError, match=r"commit 1 of store .* is in no log file"):
        open_engine(disk)


def test_a_missing_page_is_an_error_that_names_it(store: Store, disk: MemoryDisk):
    _collected(store)
    (page,) = files_below(disk, paths.PAGE_FOLDER)
    disk.remove(page)
    with pytest.raises(CorruptionError, match=r"manifest page .* is missing"):
        rows_of(open_engine(disk), "t")


def test_opening_reads_the_log_from_the_newest_checkpoint_on(store: Store, disk: MemoryDisk):
    rng = random.Random(2)
    expected = []
    for _ in range(20):
        value = rng.randbytes(5)
        expected.append(value)
        send_rows(store.log, "t", [Sent(None, value)])
        if rng.random() < 0.3:
            seal(store.log, plan_seal(store.log.refresh()))
        if rng.random() < 0.3:
            store.checkpoint()
        found = rows_of(open_engine(disk), "t")
        assert [row.value for row in found.values()] == expected


def test_a_read_only_handle_restores_the_state_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with kmq.open(tmp_path, maintenance=False) as written:
        written.create_topic("t")
        written.checkpoint()
    seen = Mock(side_effect=check_known)
    monkeypatch.setattr("kmq_storage.log.checkpoints.checkpoint.check_known", seen)
    with kmq.open(tmp_path, read_only=True) as read:
        assert (read.offsets("t"), read.log.known_state.lsn) == ({0: (0, 0)}, 1)
    assert seen.call_count == 1
