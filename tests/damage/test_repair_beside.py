"""Repair beside writers. Finds records that a repair deletes with the files it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.cli.command_line import main
from kmq_storage import paths
from kmq_storage.format.frame import MAGIC
from kmq_storage.integrity import repair
from kmq_storage.log.checkpoints import checkpoint
from kmq_storage.log.disk import behind
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.files.hint import Hint, open_hint
from kmq_storage.log.state.lost_ranges import Unnamed
from tests.damage import bucket as buckets
from tests.support.damage import flip
from tests.support.dying_disk import Died, die


def _sent_behind(patch: pytest.MonkeyPatch, store: kmq.Store) -> list[kmq.RecordMetadata]:
    """Have somebody send a record right after each of three steps of a repair."""
    sent: list[kmq.RecordMetadata] = []

    def behind(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **options: Any) -> Any:
            done = step(*arguments, **options)
            with store.producer() as producer:
                sent.append(producer.send("t", b"beside", partition=0).result(10))
            return done

        return stepped

    for name in ("seal", "_newest", "plan_seal"):
        patch.setattr(repair, name, behind(getattr(repair, name)))
    return sent


def test_records_that_are_sent_while_damaged_log_files_are_left_behind_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            for number in range(5):
                producer.send("t", b"value %d" % number).result(10)
    log = tmp_path / "log" / f"{1:020d}.log"
    flip(log, log.read_bytes().index(b"value 2"))
    with (
        kmq.open(tmp_path, maintenance=False) as store,
        kmq.open(tmp_path, maintenance=False) as other,
    ):
        with monkeypatch.context() as patch:
            sent = _sent_behind(patch, other)
            assert store.repair(drop_damaged=True).ok
        assert not log.exists()
        found = store.read("t", start={0: 3}).read_all()["value"].to_pylist()
    assert len(sent) >= 3
    assert found == [b"value 3", b"value 4"] + [b"beside"] * len(sent)


def test_in_a_bucket_too(monkeypatch: pytest.MonkeyPatch):
    bucket = buckets.filled_bucket()
    buckets.flip(bucket, buckets.commits_of(bucket)[-1])
    with buckets.store_in(bucket) as store, buckets.store_in(bucket) as other:
        assert not store.repair().ok
        store.repair(drop_damaged=True)
        with other.producer() as producer:
            producer.send("t", b"value", partition=0).result(10)
        changed = buckets.commits_of(bucket)[-1]
        body = bucket.objects[changed]
        bucket.objects[changed] = body.replace(b"value", b"VALUE")
    with buckets.store_in(bucket) as store, buckets.store_in(bucket) as other:
        with monkeypatch.context() as patch:
            sent = _sent_behind(patch, other)
            assert store.repair(drop_damaged=True).ok
        assert len(sent) >= 3
        found = buckets.read_around(store, 0)
    assert [value for _, value in found[-len(sent) :]] == [b"beside"] * len(sent)


def _die_going_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, dying: Any
) -> None:
    """Have a store go on behind its log in a process that dies where it calls this."""
    with kmq.open(path, maintenance=False) as store:
        assert isinstance(store.log, LocalLog)
        with monkeypatch.context() as patch, pytest.raises(Died):
            patch.setattr(owner, name, dying)
            store.log.go_on_behind(Unnamed())


def test_a_repair_that_dies_when_it_made_a_log_file_leaves_no_writer_in_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with kmq.open(tmp_path, maintenance=False) as other:
        other.create_topic("t")
        producer = other.producer()
        producer.send("t", b"first").result(10)
        _die_going_on(tmp_path, monkeypatch, Hint, "count_roll", die)
        assert len([*(tmp_path / "log").glob("0*.log")]) == 2
        producer.send("t", b"second").result(10)
        with kmq.open(tmp_path, maintenance=False) as store:
            assert store.read("t").read_all()["value"].to_pylist() == [b"first", b"second"]
            assert store.verify(deep=True).ok


def test_a_repair_that_dies_at_its_checkpoint_leaves_no_writer_who_knows_of_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with kmq.open(tmp_path, maintenance=False) as other:
        other.create_topic("t")
        producer = other.producer()
        producer.send("t", b"first").result(10)
        producer.send("t", b"second").result(10)  # which `other` has read, as it wrote it
        log = tmp_path / "log" / f"{1:020d}.log"
        flip(log, log.read_bytes().rindex(MAGIC))
        write = behind.write_checkpoint
        _die_going_on(
            tmp_path,
            monkeypatch,
            behind,
            "write_checkpoint",
            lambda *a, **o: die(write(*a, **o)),
        )
        sent = producer.send("t", b"third").result(10)
        with kmq.open(tmp_path, maintenance=False) as store:
            assert store.repair(drop_damaged=True).ok
            found = store.read("t", start={0: sent.offset}).read_all()
            assert found["value"].to_pylist() == [b"third"]


def test_a_failed_sync_whose_page_was_lost_keeps_no_command_from_repairing(tmp_path: Path):
    with kmq.open(tmp_path, durability="os", maintenance=False) as store:
        store.create_topic("t")
        store.producer().send("t", b"first").result(10)
        log = store.log
        assert isinstance(log, LocalLog)
        hint = open_hint(log.files, log.identity.seed, log.environment)
        hint.note_sync_failed(True)
        hint.distrust()
    assert main(["--store", str(tmp_path), "repair", "--drop-damaged"]) == 0
    with kmq.open(tmp_path, maintenance=False) as store:
        assert store.read("t").read_all()["value"].to_pylist() == [b"first"]


def test_nobody_takes_the_name_of_a_lost_commit_that_a_checkpoint_covers():
    bucket = buckets.filled_bucket()
    with buckets.store_in(bucket) as slept, buckets.store_in(bucket) as other:
        last = slept.log.refresh().lsn
        with other.producer() as producer:
            for number in range(4):
                producer.send("t", b"%d" % number, partition=0).result(10)
        other.seal()
        other.checkpoint()
        buckets.remove(bucket, paths.commit_object(last + 1))
        with buckets.store_in(bucket) as store:
            assert store.repair(drop_damaged=True).ok
            before = buckets.read_around(store, 0)
        with slept.producer() as producer:
            sent = producer.send("t", b"late", partition=0).result(10)
        with buckets.store_in(bucket) as store:
            assert buckets.read_around(store, 0) == [*before, (sent.offset, b"late")]


def test_a_handle_of_a_bucket_that_met_damage_goes_on_behind_a_repair(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(checkpoint, "_LOOK_FOR_REPAIR", 0.0)
    bucket = buckets.filled_bucket()
    buckets.flip(bucket, buckets.commits_of(bucket)[-1])
    with buckets.store_in(bucket) as met:
        producer = met.producer()
        with pytest.raises(kmq.CorruptionError):
            producer.send("t", b"refused", partition=0).result(10)
        with buckets.store_in(bucket) as store:
            assert store.repair(drop_damaged=True).ok
        for name in buckets.commits_of(bucket)[:-1]:
            buckets.remove(bucket, name)  # as a collection does later
        sent = met.producer().send("t", b"after", partition=0).result(10)
        assert buckets.read_around(met, 0)[-1] == (sent.offset, b"after")


@pytest.mark.parametrize("partitions", [1, 2])
def test_who_knows_a_topic_of_which_a_repair_gave_up_the_making_leaves_a_store_that_opens(
    partitions: int,
):
    bucket = buckets.filled_bucket()
    with buckets.store_in(bucket) as knows:
        knows.create_topic("made", partitions=partitions)
        made = knows.log.refresh().lsn
        with knows.producer() as producer:
            for number in range(partitions):
                producer.send("made", b"lost", partition=number).result(10)
            for lsn in range(made, knows.log.refresh().lsn + 1):
                buckets.flip(bucket, paths.commit_object(lsn))
            with buckets.store_in(bucket) as store:
                assert store.repair(drop_damaged=True).ok
            for number in reversed(range(partitions)):
                assert producer.send("made", b"kept", partition=number).result(10).offset == 1
    with buckets.store_in(bucket) as store:
        (name,) = {topic.name for topic in store.topics()} - {"t"}
        assert name.startswith("recovered-")
        for number in range(partitions):
            with pytest.raises(kmq.DataLossError):
                store.read(name, partitions=[number], start={number: 0}).read_all()
            found = store.read(name, partitions=[number], start={number: 1}).read_all()
            assert found["value"].to_pylist() == [b"kept"]
        store.seal()
        store.checkpoint()
        assert store.verify(deep=True).ok


def test_a_checkpoint_whose_pages_are_collected_already_is_left_to_collection(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        for _ in range(2):
            producer.send("t", b"value").result(10)
            store.seal()
            store.checkpoint()
        pages = sorted((tmp_path / "pages").iterdir(), key=lambda page: page.stat().st_mtime_ns)
        pages[0].unlink()  # as a collection does before it deletes the older checkpoint
        before = sorted((tmp_path / "checkpoints").iterdir())
        report = store.repair()
        assert sorted((tmp_path / "checkpoints").iterdir()) == before
        assert (report.ok, len(report.notes)) == (True, 1)
        assert "is being collected" in report.notes[0]
        assert store.collect(grace=0).files == 1
        assert store.verify().notes == []
