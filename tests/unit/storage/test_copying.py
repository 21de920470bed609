"""Finds a copy that differs from its source, or that is wrong after it was interrupted."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.copying.topics import copy_topics
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.index.offset_index import Hole
from kmq_storage.maintenance import segment_files
from kmq_storage.model import LogDamage
from tests.support.damage import flip_in_the_middle
from tests.support.dying_disk import Died, DyingDisk
from tests.support.engine import open_engine


@pytest.fixture
def source(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(tmp_path / "source", maintenance=False) as store:
        store.create_topic("plain", partitions=2, retention=3600.0)
        store.create_topic("newest", cleanup="compact")
        with store.producer() as producer:
            for number in range(300):
                producer.send("plain", b"v%d" % number, key=b"k%d" % number)
                producer.send("newest", b"n%d" % number, key=b"k%d" % (number % 10))
            producer.flush()
            store.seal()
            store.compact("newest")
            store.trim("plain", {0: 20})
            for number in range(50):
                producer.send("plain", b"tail%d" % number, headers={"h": "x"})
        store.set_group_offsets("readers", {"plain": {0: 30, 1: 5}})
        yield store


def _rows(store: kmq.Store, topic: str) -> list[dict[str, object]]:
    return store.read(topic).read_all().to_pylist()


def test_a_copy_has_the_same_records_at_the_same_offsets(source: kmq.Store, tmp_path: Path):
    with kmq.open(tmp_path / "target") as target:
        report = copy_topics(source.log, target.log)
        for topic in ("plain", "newest"):
            assert _rows(target, topic) == _rows(source, topic)
            assert target.offsets(topic) == source.offsets(topic)
            assert target.describe_topic(topic) == source.describe_topic(topic)
        assert target.describe_group("readers").committed == {"plain": {0: 30, 1: 5}}
    assert (report.topics, report.rows) == (
        2,
        sum(len(_rows(source, t)) for t in ("plain", "newest")),
    )


def test_a_store_is_not_copied_to_itself_by_whatever_name(source: kmq.Store, tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "source")
    before = source.log.refresh().lsn
    with (
        kmq.open(tmp_path / "link") as target,
        pytest.raises(kmq.InvalidRequestError, match="are one store"),
    ):
        copy_topics(source.log, target.log)
    assert source.log.refresh().lsn == before


def test_a_copy_goes_on_where_it_was_interrupted(
    source: kmq.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written = []
    original = segment_files.write_segment

    def fails_at_the_second(*arguments: object) -> object:
        written.append(arguments)
        if len(written) == 2:
            raise OSError("the disk went away")
        return original(*arguments)  # type: ignore[arg-type]

    with kmq.open(tmp_path / "target") as target:
        with monkeypatch.context() as patch, pytest.raises(OSError, match="went away"):
            patch.setattr("kmq_storage.copying.partition.write_segment", fails_at_the_second)
            copy_topics(source.log, target.log)
        with source.producer() as producer:
            producer.send("plain", b"later", partition=0)
        copy_topics(source.log, target.log)
        assert _rows(target, "plain") == _rows(source, "plain")
        assert _rows(target, "newest") == _rows(source, "newest")
        assert copy_topics(source.log, target.log).rows == 0


def _dies_at(step: int, source: kmq.Store, target: kmq.Store) -> bool:
    """Copy, and die at a step, before a commit or behind it; False when there are not so many."""
    commit, steps = target.log.commit, count()

    def dying(units: Sequence[Unit]) -> Any:
        if next(steps) == step:
            raise Died
        done = commit(units)
        if next(steps) == step:
            raise Died
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target.log, "commit", dying)
        try:
            copy_topics(source.log, target.log)
        except Died:
            return True
    return False


def test_who_dies_before_or_after_any_commit_of_a_copy_leaves_the_rest_to_the_next_one(
    source: kmq.Store,
):
    for name in ("q", "r"):
        source.create_queue(name, topics=["plain"])
        held = source.queue(name).receive(9)
        source.queue(name).ack(held[1:])
    step, died = 0, True
    while died:
        disk = DyingDisk(f"memory://{uuid.uuid4().hex}")
        died = _dies_at(step, source, open_engine(disk))
        disk.revive()
        with open_engine(disk) as target:
            for topic in target.topics():
                assert _is_beginning(_rows(target, topic.name), _rows(source, topic.name))
            copy_topics(source.log, target.log)
            for topic in source.topics():
                assert _rows(target, topic.name) == _rows(source, topic.name)
            assert target.describe_group("readers").committed == {"plain": {0: 30, 1: 5}}
            assert target.queues() == source.queues()
            assert target.verify(deep=True).ok
        step += 1
    assert step > 20


def _is_beginning(copied: list[dict[str, object]], whole: list[dict[str, object]]) -> bool:
    """Whether each partition has the first records of its source's."""
    for number in range(2):
        found, wanted = ([r for r in rows if r["partition"] == number] for rows in (copied, whole))
        if found != wanted[: len(found)]:
            return False
    return True


def test_two_copies_at_once_make_one(
    source: kmq.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The second one copies everything before each commit of the first one."""
    source.create_queue("q", topics=["plain"])
    with ExitStack() as stack:
        target, faster = (
            stack.enter_context(kmq.open(tmp_path / "target", maintenance=False)) for _ in range(2)
        )
        commit = target.log.commit

        def late(units: Sequence[Unit]) -> Any:
            copy_topics(source.log, faster.log)
            return commit(units)

        monkeypatch.setattr(target.log, "commit", late)
        report = copy_topics(source.log, target.log)
        assert (report.rows, report.queues) == (0, 0)
        for topic in ("plain", "newest"):
            assert _rows(target, topic) == _rows(source, topic)
        assert target.queues() == source.queues()


def test_a_copy_that_was_written_to_is_not_continued(source: kmq.Store, tmp_path: Path):
    with kmq.open(tmp_path / "target") as target:
        copy_topics(source.log, target.log, ["plain"])
        assert [topic.name for topic in target.topics()] == ["plain"]
        with target.producer() as producer:
            producer.send("plain", b"of my own", partition=1)
        with pytest.raises(kmq.InvalidRequestError, match="plain-1 in the target was written to"):
            copy_topics(source.log, target.log)


def test_a_copy_that_was_deleted_is_refused_and_no_empty_topic_is_made(
    source: kmq.Store, tmp_path: Path
):
    with kmq.open(tmp_path / "target") as target:
        copy_topics(source.log, target.log)
        target.delete_topic("plain")
        for _ in range(2):
            with pytest.raises(kmq.InvalidRequestError, match=r"Topic\[plain\] was deleted in .*"):
                copy_topics(source.log, target.log)
        assert [topic.name for topic in target.topics()] == ["newest"]
        assert copy_topics(source.log, target.log, ["newest"]).rows == 0


def test_a_queue_that_was_deleted_in_the_copy_is_named(tmp_path: Path):
    source, target = kmq.open(tmp_path / "source"), kmq.open(tmp_path / "target")
    with source, target, source.producer() as producer:
        source.create_queue("jobs")
        producer.send_to_queue("jobs", b"one").result()
        copy_topics(source.log, target.log)
        target.delete_queue("jobs")
        with pytest.raises(kmq.InvalidRequestError, match=r"Queue\[jobs\] was deleted in"):
            copy_topics(source.log, target.log)


def test_another_topic_of_that_name_is_not_written_over(source: kmq.Store, tmp_path: Path):
    with kmq.open(tmp_path / "target") as target:
        target.create_topic("plain")
        with pytest.raises(kmq.AlreadyExistsError, match="no copy of this one; delete it there"):
            copy_topics(source.log, target.log)


def test_a_topic_that_was_changed_in_the_target_tells_how_the_copy_goes_on(
    source: kmq.Store, tmp_path: Path
):
    schema = pa.schema([("id", pa.int32())])
    wider = pa.schema([("id", pa.int64())])
    source.create_topic("typed", schema=schema)
    with kmq.open(tmp_path / "target") as target:
        copy_topics(source.log, target.log)
        target.add_partitions("plain", 4)
        with pytest.raises(kmq.InvalidRequestError, match=r"\[plain\] .* it has 4 partitions; cha"):
            copy_topics(source.log, target.log)
        source.add_partitions("plain", 4)
        target.alter_topic("typed", schema=wider)
        with pytest.raises(kmq.InvalidRequestError, match=r"\[typed\] .* it has a newer schema; c"):
            copy_topics(source.log, target.log)
        source.alter_topic("typed", schema=wider)
        copy_topics(source.log, target.log)
        assert target.describe_topic("typed").schema == wider


def test_damage_in_the_source_stops_the_copy(source: kmq.Store, tmp_path: Path):
    folder = tmp_path / "source" / "segments" / source.describe_topic("plain").topic_id.hex
    file = next(folder.glob("*/*.arrow"))
    flip_in_the_middle(file)
    with (
        kmq.open(tmp_path / "target") as target,
        pytest.raises(kmq.CorruptionError, match=file.name),
    ):
        copy_topics(source.log, target.log)


def _send(store: kmq.Store, topic: str, rows: int) -> None:
    with store.producer() as producer:
        producer.send_batch(topic, [b"%d" % number for number in range(rows)]).result()


@pytest.mark.parametrize("trimmed", [0, 250])
def test_a_copy_beside_maintenance_that_outlasts_the_grace_time_looks_again_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trimmed: int
):
    def moves_everything_at_the_second(*arguments: object) -> object:
        if written.append(arguments) or len(written) == 2:  # type: ignore[func-returns-value]
            source.compact("t")
            source.trim("t", {0: trimmed})
            source.checkpoint()
            source.collect(grace=0)
        return original(*arguments)  # type: ignore[arg-type]

    written: list[object] = []
    original = segment_files.write_segment
    monkeypatch.setattr(
        "kmq_storage.copying.partition.write_segment", moves_everything_at_the_second
    )
    with (
        kmq.open(tmp_path / "source", maintenance=False) as source,
        kmq.open(tmp_path / "target") as target,
    ):
        source.create_topic("t", cleanup="compact")
        for _ in range(3):
            with source.producer() as producer:
                for number in range(100):
                    producer.send("t", b"v%d" % number, key=b"%d" % number)
            source.seal()
        files = set(tmp_path.glob("source/segments/*/*/*.arrow"))
        report = copy_topics(source.log, target.log)
        assert not files & set(tmp_path.glob("source/segments/*/*/*.arrow"))
        assert len(written) > 2
        start = {0: max(trimmed, 100)}
        assert target.read("t", start=start).read_all() == source.read("t", start=start).read_all()
        assert report.gaps == (1 if trimmed else 0)
        assert target.offsets("t") == {0: (0, 300)}


def _emptied(tmp_path: Path) -> kmq.Store:
    store = kmq.open(tmp_path / "emptied", maintenance=False)
    store.create_topic("t")
    _send(store, "t", 200)
    store.trim("t", {0: 200})
    return store


def test_a_partition_that_was_trimmed_to_its_end_goes_on_at_the_same_offset(tmp_path: Path):
    with _emptied(tmp_path) as source, kmq.open(tmp_path / "target") as target:
        source.set_group_offsets("g", {"t": {0: 200}})
        for _ in range(2):
            assert copy_topics(source.log, target.log).gaps == 0
            assert target.offsets("t") == {0: (200, 200)}
        assert target.describe_group("g").committed == {"t": {0: 200}}
        _send(source, "t", 3)
        copy_topics(source.log, target.log)
        assert _rows(target, "t") == _rows(source, "t")
        assert target.verify(deep=True).notes == []


def test_what_was_trimmed_before_a_copy_came_to_it_is_a_gap_and_the_copy_goes_on(tmp_path: Path):
    with (
        kmq.open(tmp_path / "source", maintenance=False) as source,
        kmq.open(tmp_path / "target") as target,
    ):
        source.create_topic("t")
        _send(source, "t", 100)
        copy_topics(source.log, target.log)
        _send(source, "t", 100)
        source.trim("t", {0: 150})
        assert copy_topics(source.log, target.log).gaps == 1
        with pytest.raises(kmq.DataLossError, match=r"100 to 149 .*trimmed in the source"):
            target.read("t").read_all()
        assert target.read("t", end={0: 100}).read_all().num_rows == 100
        assert target.read("t", start={0: 150}).read_all() == source.read("t").read_all()
        assert copy_topics(source.log, target.log).gaps == 0


@pytest.mark.parametrize("sealed", [True, False])
def test_what_the_source_lost_is_lost_in_its_copy_and_told(tmp_path: Path, sealed: bool):
    with (
        kmq.open(tmp_path / "source", maintenance=False) as source,
        kmq.open(tmp_path / "target") as target,
    ):
        source.create_topic("t")
        for _ in range(3):
            _send(source, "t", 100)
        cut = GapEntry(source.describe_topic("t").topic_id.bytes, 0, 100, 200, 100, 0, 9, "damaged")
        source.log.commit([Unit((cut,))])
        if sealed:
            source.seal()
        report = copy_topics(source.log, target.log)
        assert (report.rows, report.gaps) == (200, 1)
        with pytest.raises(kmq.DataLossError, match="100 to 199"):
            target.read("t").read_all()
        assert _parts(target) == _parts(source)
        assert target.offsets("t") == {0: (0, 300)}


def _parts(store: kmq.Store) -> list[object]:
    bounds = ((0, 100), (200, 300))
    return [store.read("t", start={0: low}, end={0: high}).read_all() for low, high in bounds]


def test_commits_that_a_source_can_not_read_stop_the_copy_and_hide_nothing(
    source: kmq.Store, tmp_path: Path
):
    topic = source.log.refresh().topic("newest")
    damage = LogDamage("log/1.log", "header", 7, 7)
    topic.index(0).holes.append(Hole(100, 101, damage))
    with (
        kmq.open(tmp_path / "target") as target,
        pytest.raises(kmq.CorruptionError, match="offsets 100 to 100 can't be read"),
    ):
        copy_topics(source.log, target.log)


def test_a_group_is_moved_forward_by_a_copy_and_never_back(source: kmq.Store, tmp_path: Path):
    with kmq.open(tmp_path / "target") as target:
        copy_topics(source.log, target.log)
        target.set_group_offsets("readers", {"plain": {0: 40, 1: 5}})
        source.set_group_offsets("readers", {"plain": {0: 35, 1: 6}})
        copy_topics(source.log, target.log)
        assert target.describe_group("readers").committed == {"plain": {0: 40, 1: 6}}


def test_a_group_that_somebody_reads_with_is_left_alone(source: kmq.Store, tmp_path: Path):
    with kmq.open(tmp_path / "target") as target:
        copy_topics(source.log, target.log)
        source.set_group_offsets("readers", {"plain": {0: 35}})
        with target.consumer("readers", topics="plain"):
            copy_topics(source.log, target.log)
        assert target.describe_group("readers").committed["plain"][0] == 30


def test_a_group_behind_the_start_of_its_source_begins_at_the_start(
    source: kmq.Store, tmp_path: Path
):
    source.trim("plain", {0: 40})
    with kmq.open(tmp_path / "target") as target:
        copy_topics(source.log, target.log)
        assert target.describe_group("readers").committed["plain"][0] == 40
