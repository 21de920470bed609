"""Collection on real stores: what goes, what stays, and what a crash at any step leaves."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.store import Store
from kmq_spark.errors import CorruptionError, OffsetOutOfRangeError
from kmq_storage import limits, paths
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.log.checkpoints.checkpoint import checkpoints
from kmq_storage.maintenance.collect import collect
from kmq_storage.maintenance.pins import pinned
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.objects.memory import MemoryDisk
from tests.simulation.mutants import never_looks_for_moved_files
from tests.support.dying_disk import Died, DyingDisk
from tests.support.engine import Sent, files_below, open_engine, rows_of, send_rows

HOUR = 3_600_000_000
ROWS = [Sent(b"k%d" % (n % 5), b"v%d" % n, n) for n in range(10)]


@pytest.fixture
def disk() -> DyingDisk:
    return DyingDisk(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def store(disk: DyingDisk) -> Store:
    store = open_engine(disk)
    store.create_topic("t", cleanup="compact")
    return store


def _sealed(store: Store, times: int = 1) -> None:
    for _ in range(times):
        send_rows(store.log, "t", ROWS)
        store.seal()


def _segments(disk: MemoryDisk) -> list[str]:
    return files_below(disk, paths.SEGMENT_FOLDER)


def test_what_compaction_replaced_goes_after_the_grace_time_and_not_before(
    store: Store, disk: DyingDisk
):
    _sealed(store, 2)
    store.checkpoint()
    old = _segments(disk)
    store.compact("t")
    store.checkpoint()
    assert store.collect() == store.collect(grace=60)
    assert set(old) < set(_segments(disk))
    disk.ahead = HOUR
    assert store.collect().files >= 2
    assert not set(old) & set(_segments(disk))
    assert len(rows_of(store, "t")) == 5


def test_what_was_replaced_just_before_the_first_checkpoint_stays_for_its_readers(
    store: Store, disk: DyingDisk
):
    _sealed(store, 2)
    store.compact("t")
    store.checkpoint()
    before = files_below(disk, "")
    assert store.collect().files == 0
    assert files_below(disk, "") == before


def test_a_segment_that_was_replaced_lately_is_no_orphan_however_old_it_is(
    store: Store, disk: DyingDisk
):
    store.checkpoint()
    _sealed(store, 2)
    old = _segments(disk)
    disk.ahead = 30 * 24 * HOUR
    store.compact("t")
    store.checkpoint()
    store.collect()
    assert set(old) <= set(_segments(disk))
    disk.ahead = 31 * 24 * HOUR
    store.collect()
    assert not set(old) & set(_segments(disk))


def test_a_file_that_no_commit_ever_named_goes_when_it_is_old(store: Store, disk: DyingDisk):
    _sealed(store)
    store.checkpoint()
    before_ids_had_an_lsn = uuid.UUID("6f0d6e7c-5a7e-4d0a-8a53-0f6c5b8d9e10").bytes
    orphans = [
        paths.segment_file(bytes(16), 0, 0, new_file_id(uuid.uuid4(), 1)),
        paths.staged_file(new_file_id(uuid.uuid4(), 2)),
        paths.staged_file(before_ids_had_an_lsn),
        paths.page_file(new_file_id(uuid.uuid4(), 1)),
        f"{paths.SEGMENT_FOLDER}/{'0' * 32}/0/abc.tmp",
        f"{paths.CHECKPOINT_FOLDER}/abc.tmp",
        f"{paths.log_file(7)}.tmp",
    ]
    for path in orphans:
        disk.publish(path, [b"x"], sync=True)
    collect(store.log, grace=0.0)
    assert set(orphans) <= set(files_below(disk, ""))
    disk.ahead = 25 * HOUR
    collect(store.log, grace=0.0)
    assert not set(orphans) & set(files_below(disk, ""))
    assert list(rows_of(store, "t")) == list(range(10))


def test_log_files_go_when_their_records_are_sealed_and_their_commits_checkpointed(
    store: Store, disk: DyingDisk
):
    for _ in range(40):
        send_rows(store.log, "t", ROWS)
    before = files_below(disk, paths.LOG_FOLDER)
    assert len(before) > 3
    store.collect(grace=0)
    store.checkpoint()
    store.collect(grace=0)
    assert files_below(disk, paths.LOG_FOLDER) == before  # the records are still inside
    store.seal()
    store.checkpoint()
    store.collect(grace=0)
    assert len(files_below(disk, paths.LOG_FOLDER)) == 1
    assert len(rows_of(open_engine(disk), "t")) == 400


def test_the_files_of_a_deleted_topic_go(store: Store, disk: DyingDisk):
    _sealed(store)
    send_rows(store.log, "t", ROWS, staged=True)
    store.checkpoint()
    store.delete_topic("t")
    store.checkpoint()
    store.collect(grace=0)
    assert _segments(disk) == []
    assert files_below(disk, paths.STAGED_FOLDER) == []


def test_a_pin_keeps_what_its_lsn_refers_to_until_it_is_given_back_or_over(
    store: Store, disk: DyingDisk
):
    _sealed(store, 2)
    lsn, old = store.log.refresh().lsn, _segments(disk)
    with pinned(store.log, lsn, 60.0):
        store.compact("t")
        store.checkpoint()
        store.collect(grace=0)
        assert set(old) <= set(_segments(disk))
        disk.ahead = HOUR  # it was never given back: its owner died
        store.collect(grace=0)
        assert not set(old) & set(_segments(disk))
        assert files_below(disk, paths.PIN_FOLDER) == []


def test_a_pin_that_was_given_back_keeps_nothing(store: Store, disk: DyingDisk):
    _sealed(store, 2)
    old = _segments(disk)
    with pinned(store.log, store.log.refresh().lsn, 60.0):
        pass
    store.compact("t")
    store.checkpoint()
    store.collect(grace=0)
    assert not set(old) & set(_segments(disk))


def _grown(disk: DyingDisk, partitions: int = 1) -> Store:
    """A store with something of everything to collect."""
    store = open_engine(disk)
    store.create_topic("t", partitions=partitions, cleanup="compact")
    _sealed(store, 2)
    send_rows(store.log, "t", ROWS, staged=True)
    store.checkpoint()
    store.compact("t")
    store.trim("t", {0: 3})
    store.checkpoint()
    return store


def test_killed_at_any_step_of_a_collection_the_next_one_goes_on():
    died = True
    step = 0
    while died:
        disk = DyingDisk(f"memory://{uuid.uuid4().hex}")
        store = _grown(disk)
        expected = rows_of(store, "t")
        disk.changes_left = step
        died = False
        try:
            store.collect(grace=0)
        except Died:
            died = True
        disk.revive()
        store = open_engine(disk)
        assert rows_of(store, "t") == expected
        store.collect(grace=0)
        assert rows_of(open_engine(disk), "t") == expected
        assert len(_segments(disk)) == len(files_below(disk, paths.CHECKPOINT_FOLDER)) == 1
        assert files_below(disk, paths.STAGED_FOLDER) == []
        step += 1
    assert step > 5


@pytest.mark.parametrize("work", ["seal", "compact", "trim", "checkpoint", "maintain"])
def test_killed_at_any_step_of_any_maintenance_no_record_is_lost(
    work: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "SEAL_AFTER", 0.0)
    monkeypatch.setattr(limits, "CHECKPOINT_COMMITS", 1)
    calls = {
        "seal": lambda store: store.seal(),
        "compact": lambda store: store.compact("t"),
        "trim": lambda store: store.trim("t", {0: 7}),
        "checkpoint": lambda store: store.checkpoint(),
        "maintain": lambda store: store.maintain(grace=0),
    }
    died, step = True, 0
    while died:
        disk = DyingDisk(f"memory://{uuid.uuid4().hex}")
        store = _grown(disk, partitions=3)
        for number in range(3):
            send_rows(store.log, "t", ROWS, partition=number)
        newest = [_newest(store, number) for number in range(3)]
        disk.changes_left, died = step, False
        try:
            calls[work](store)
        except Died:
            died = True
        disk.revive()
        for store in (open_engine(disk), open_engine(disk)):
            assert [_newest(store, number) for number in range(3)] == newest
            store.maintain(grace=0)
        step += 1


def _newest(store: Store, partition: int) -> dict[bytes | None, Sent]:
    return {row.key: row for row in rows_of(store, "t", partition).values()}


def test_a_damaged_checkpoint_that_is_dropped_stops_no_collection(store: Store, disk: DyingDisk):
    _sealed(store)
    store.checkpoint()
    (lsn, digest) = checkpoints(disk)[0]
    damaged = paths.checkpoint_file(lsn, digest)
    disk.files[damaged] = disk.files[damaged][:-9] + b"X" + disk.files[damaged][-8:]
    _sealed(store)
    store = open_engine(disk)
    store.checkpoint()
    store.collect(grace=0)
    assert damaged not in disk.files
    assert len(rows_of(store, "t")) == 20


def test_nothing_goes_while_nobody_knows_what_a_retained_checkpoint_refers_to(
    store: Store, disk: DyingDisk
):
    _sealed(store)
    store.checkpoint()
    (page,) = files_below(disk, paths.PAGE_FOLDER)
    disk.files[page] = disk.files[page][:-9] + b"X" + disk.files[page][-8:]
    before = files_below(disk, "")
    with pytest.raises(CorruptionError, match="manifest page"):
        open_engine(disk).collect(grace=0)
    assert files_below(disk, "") == before


def test_two_collectors_at_once_do_no_harm(store: Store, disk: DyingDisk):
    _sealed(store, 3)
    store.checkpoint()
    store.compact("t")
    store.checkpoint()
    other, interrupted = open_engine(disk), []
    remove = disk.remove

    def remove_after_the_other(*removed: str) -> None:
        if not interrupted:
            interrupted.append(removed)
            other.collect(grace=0)
        remove(*removed)

    disk.remove = remove_after_the_other  # type: ignore[method-assign]
    store.collect(grace=0)
    assert interrupted
    assert len(rows_of(store, "t")) == 5
    assert len(checkpoints(disk)) == 1


def test_who_finds_another_collector_at_work_deletes_nothing(store: Store, disk: DyingDisk):
    _sealed(store, 3)
    store.checkpoint()
    store.compact("t")
    store.checkpoint()
    lock = disk.open_lock(paths.COLLECT_LOCK)
    assert lock.try_acquire()
    assert store.collect(grace=0).files == 0
    lock.release()
    assert store.collect(grace=0).files > 0


def test_a_reader_in_the_middle_of_collected_files_goes_on(store: Store, disk: DyingDisk):
    for _ in range(30):
        send_rows(store.log, "t", [Sent(None, b"v" * 300)] * 10)
    reader = iter(store.read("t", batch_rows=10))
    assert next(reader).num_rows
    other = open_engine(disk)
    for _ in range(2):
        seal(other.log, plan_seal(other.log.refresh(), segment_bytes=2_000))
        other.compact("t")
        other.checkpoint()
        other.collect(grace=0)
    offsets = [at for batch in reader for at in batch.column("offset").to_pylist()]
    assert offsets[-1] == 299
    assert offsets == list(range(offsets[0], 300))


def test_that_files_are_not_looked_for_when_they_moved_is_found_when_it_is_planted(
    store: Store, disk: DyingDisk, monkeypatch: pytest.MonkeyPatch
):
    never_looks_for_moved_files(monkeypatch)
    with pytest.raises(CorruptionError):
        test_a_reader_in_the_middle_of_collected_files_goes_on(store, disk)


def test_a_reader_behind_a_trim_gets_an_error_and_no_hole(store: Store, disk: DyingDisk):
    for _ in range(30):
        send_rows(store.log, "t", [Sent(None, b"v" * 300)] * 10)
    reader = iter(store.read("t", batch_rows=10))
    next(reader)
    other = open_engine(disk)
    other.seal()
    other.trim("t", {0: 200})
    other.checkpoint()
    other.collect(grace=0)
    found: list[int] = []
    with pytest.raises(OffsetOutOfRangeError, match="which holds 200 to 300"):
        for batch in reader:
            found += batch.column("offset").to_pylist()
    assert found == list(range(10, 10 + len(found)))


def test_a_store_without_a_checkpoint_loses_no_file(store: Store, disk: DyingDisk):
    _sealed(store)
    before = files_below(disk, "")
    assert store.collect(grace=0).files == 0
    assert files_below(disk, "") == before


def test_plain_sends_of_another_handle_go_on_over_a_collection(store: Store, disk: DyingDisk):
    other = open_engine(disk)
    for _ in range(40):
        send_rows(store.log, "t", ROWS)
    assert other.log.refresh().lsn
    store.seal()
    store.checkpoint()
    store.collect(grace=0)
    send_rows(other.log, "t", ROWS)
    assert len(rows_of(store, "t")) == 410


@pytest.mark.parametrize("pin", [True, False])
def test_a_reader_with_a_pin_reads_to_its_end_what_was_trimmed_and_collected(
    tmp_path: Path, pin: bool
):
    with kmq.open(tmp_path) as store, kmq.open(tmp_path, read_only=True) as other:
        store.create_topic("t")
        with store.producer() as producer:
            for _ in range(6):  # segments: the reader has opened only the first when they go
                producer.send_batch("t", [b"x"] * 100).result()
                store.seal()
        store.checkpoint()
        reader = other.read("t", batch_rows=10)
        rows = reader.read_next_batch().num_rows
        with store.pin(60.0) if pin else nullcontext():
            store.trim("t", {0: 600})
            store.checkpoint()
            store.collect(grace=0)
            if pin:
                assert rows + reader.read_all().num_rows == 600
            else:
                with pytest.raises(OffsetOutOfRangeError):
                    reader.read_all()


def test_a_folder_below_the_pins_keeps_nobody_from_collecting(tmp_path: Path):
    (tmp_path / "pins" / "older").mkdir(parents=True)
    (tmp_path / "pins" / "older" / "notes.txt").write_bytes(b"x")
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        store.checkpoint()
        store.collect(grace=0)
        assert store.verify().ok
        assert store.repair().ok
