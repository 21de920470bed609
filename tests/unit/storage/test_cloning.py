"""Making a clone: what a kill at any step leaves, and what moves meanwhile.

Finds half a clone that opens, a place where no clone can be made again, and a clone that lacks
what its source had.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.store import Store
from kmq_storage import paths
from kmq_storage.cloning.clone import make_clone
from kmq_storage.log.checkpoints.checkpoint import checkpoints
from kmq_storage.objects import file_io
from kmq_storage.objects.local import LocalDisk
from tests.support.dying_bucket import ROWS, DyingBucket, clone_to, fill, open_bucket
from tests.support.dying_disk import Died, DyingDisk
from tests.support.engine import Sent, open_engine, rows_of, send_rows
from tests.support.failing_disk import FailingDisk


@pytest.fixture
def bucket() -> DyingBucket:
    return DyingBucket("memory-bucket://b/source")


def test_records_of_many_partitions_that_are_not_sealed_are_copied_with_few_syncs(tmp_path: Path):
    source = open_engine(LocalDisk(tmp_path / "source"), file_bytes=64 * 1024)
    source.create_topic("many", partitions=9)
    for number in range(9):
        send_rows(source.log, "many", ROWS, partition=number)
    target = FailingDisk(tmp_path / "clone")
    make_clone(source.log, target)
    assert target.calls.count("stage synced") == 2  # all segments, and a page
    clone = open_engine(target)
    assert all(list(rows_of(clone, "many", n).values()) == ROWS for n in range(9))


def test_the_folders_of_shared_files_are_made_before_the_first_is_linked_with_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = open_engine(LocalDisk(tmp_path / "source"), file_bytes=64 * 1024)
    source.create_topic("many", partitions=9)
    for number in range(9):
        send_rows(source.log, "many", ROWS, partition=number)
    source.seal()
    synced: list[str] = []
    monkeypatch.setattr(file_io, "sync_folder", synced.append)
    target = LocalDisk(tmp_path / "clone")
    make_clone(source.log, target)
    (topic,) = target.list("segments")
    assert synced.count(str(target.root / "segments" / topic)) == 1
    clone = open_engine(target)
    assert all(list(rows_of(clone, "many", n).values()) == ROWS for n in range(9))


@pytest.mark.parametrize("growing", [True, False])
def test_killed_at_any_step_there_is_no_clone_or_a_whole_one_and_the_next_one_works(
    *, growing: bool
):
    source = fill(open_engine())
    if not growing:  # then pages of its manifest are taken over as they are
        source.seal()
        source.checkpoint()
    steps = next(step for step in count() if not _killed_on_a_disk(source, step, growing=growing))
    assert steps >= 8


def _killed_on_a_disk(source: Store, step: int, *, growing: bool) -> bool:
    """Whether a maker of a clone died at a step; all is well after that."""
    expected = rows_of(source, "t")
    target = DyingDisk(f"memory://{uuid.uuid4().hex}")
    target.changes_left = step
    died = _dies(lambda: make_clone(source.log, target))
    target.revive()
    if target.exists(paths.STORE_FILE):
        with pytest.raises(kmq.AlreadyExistsError):
            make_clone(source.log, target)
    else:
        if step:  # before the first one there is nothing at all
            with pytest.raises(kmq.NotFoundError, match="never finished"):
                open_engine(target)
        if growing:
            send_rows(source.log, "t", ROWS)
            expected = rows_of(source, "t")
        make_clone(source.log, target)
    assert not target.exists(paths.CLONING_FILE)
    clone = open_engine(target)
    assert (len(checkpoints(target)), len(target.logs)) == (1, 1)
    assert rows_of(clone, "t") == expected
    assert clone.verify(deep=True).damage == []
    send_rows(clone.log, "t", ROWS)
    clone.maintain(grace=0)
    assert clone.verify(deep=True).ok
    return died


def _dies(work: Callable[[], object]) -> bool:
    try:
        work()
    except Died:
        return True
    return False


@pytest.mark.parametrize("where", ["source", "clone"])
def test_killed_at_any_step_in_a_bucket_it_is_the_same(bucket: DyingBucket, where: str):
    expected = rows_of(fill(open_bucket(bucket, create=True)), "t")
    steps = next(step for step in count() if not _killed_in_a_bucket(bucket, where, step, expected))
    assert steps >= {"source": 3, "clone": 7}[where]


def _killed_in_a_bucket(
    source: DyingBucket, where: str, step: int, expected: dict[int, Sent]
) -> bool:
    clone = source.beside(f"clone-{step}")
    (source if where == "source" else clone).changes_left = step
    died = _dies(lambda: clone_to(source, f"clone-{step}"))
    for bucket in (source, clone):
        bucket.revive()
    if paths.STORE_FILE not in clone.objects:
        if paths.CLONING_FILE in clone.objects:
            with pytest.raises(kmq.NotFoundError, match="never finished"):
                open_bucket(clone, create=True)
        clone_to(source, f"clone-{step}")
    assert rows_of(open_bucket(clone), "t") == expected
    assert open_bucket(clone).verify(deep=True).damage == []
    return died


def test_two_at_once_make_one_clone():
    source = fill(open_engine())
    target = DyingDisk(f"memory://{uuid.uuid4().hex}")
    lock = target.open_lock(paths.CLONE_LOCK)
    assert lock.try_acquire()
    with pytest.raises(kmq.UnavailableError, match="is making a clone"):
        make_clone(source.log, target)
    assert not target.exists(paths.CLONING_FILE)


def test_a_store_that_is_made_before_a_clone_shows_itself_stays(monkeypatch: pytest.MonkeyPatch):
    source, target = fill(open_engine()), DyingDisk(f"memory://{uuid.uuid4().hex}")
    link = target.link

    def link_later(*arguments: Any) -> None:
        open_engine(target)
        link(*arguments)

    monkeypatch.setattr(target, "link", link_later)
    with pytest.raises(kmq.AlreadyExistsError):
        make_clone(source.log, target)
    assert open_engine(target).topics() == []


def test_a_store_that_is_made_after_a_clone_showed_itself_gives_way(
    monkeypatch: pytest.MonkeyPatch,
):
    source, target = fill(open_engine()), DyingDisk(f"memory://{uuid.uuid4().hex}")
    publish = target.publish

    def publish_later(path: str, *arguments: Any, **options: bool) -> bool:
        monkeypatch.setattr(target, "publish", publish)
        target.link(paths.CLONING_FILE, source.log.files, paths.STORE_FILE)
        return publish(path, *arguments, **options)

    monkeypatch.setattr(target, "publish", publish_later)
    with pytest.raises(kmq.UnavailableError, match="a clone is being made"):
        open_engine(target)
    make_clone(source.log, target)
    assert rows_of(open_engine(target), "t") == rows_of(source, "t")


def test_a_store_that_lost_its_identity_is_not_cloned_over():
    source, lost = fill(open_engine()), DyingDisk(f"memory://{uuid.uuid4().hex}")
    fill(open_engine(lost))
    lost.remove(paths.STORE_FILE)
    before = dict(lost.files)
    with pytest.raises(kmq.CorruptionError, match="put it back from a copy"):
        make_clone(source.log, lost)
    assert lost.files == before


def test_files_that_move_while_they_are_linked_are_looked_up_again():
    source = fill(open_engine())
    expected = {row.key: row.value for row in rows_of(source, "t").values()}
    target, links = DyingDisk(f"memory://{uuid.uuid4().hex}"), []
    link = target.link

    def link_later(path: str, *arguments: object) -> None:
        links.append(path)
        if len(links) == 2:
            source.seal()
            source.compact("t")
            source.checkpoint()
            source.collect(grace=0)
        link(path, *arguments)  # type: ignore[arg-type]

    target.link = link_later  # type: ignore[method-assign, assignment]
    make_clone(source.log, target)
    clone = open_engine(target)
    assert {row.key: row.value for row in rows_of(clone, "t").values()} == expected
    assert clone.verify(deep=True).damage == []


def test_a_missing_segment_is_damage_of_the_source_and_stops_the_clone():
    source = fill(open_engine())
    disk = source.log.files
    (segment,) = [file.path for file in disk.walk(paths.SEGMENT_FOLDER)]
    disk.remove(segment)
    target = DyingDisk(f"memory://{uuid.uuid4().hex}")
    with pytest.raises(
        kmq.CorruptionError, match=r"is missing, .* put it back .* or .*`kmq repair"
    ):
        make_clone(source.log, target)
    assert not target.exists(paths.STORE_FILE)


@pytest.mark.parametrize("file", ["README", "log/app.log", "checkpoints/model.pt", "pages/a.html"])
def test_no_clone_is_made_among_the_files_of_others_and_none_is_deleted(tmp_path: Path, file: str):
    with kmq.open(tmp_path / "source") as source:
        source.create_topic("t")
    theirs = tmp_path / "theirs" / file
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    with pytest.raises(kmq.InvalidRequestError, match=f"other files are .{file}"):
        kmq.clone(tmp_path / "source", tmp_path / "theirs")
    found = [path for path in (tmp_path / "theirs").rglob("*") if path.is_file()]
    assert [path.read_text() for path in found] == ["theirs"]
    with pytest.raises(kmq.InvalidRequestError, match="is a file, not a folder"):
        kmq.clone(tmp_path / "source", theirs)


def test_no_clone_deletes_the_objects_of_others(bucket: DyingBucket):
    fill(open_bucket(bucket, create=True))
    target = bucket.beside("theirs")
    target.put("log/app.log", [b"theirs"])
    with pytest.raises(kmq.InvalidRequestError, match=r"other files are .log/app\.log"):
        clone_to(bucket, "theirs")
    assert target.objects == {"log/app.log": b"theirs"}


def test_a_clone_that_nobody_opened_yet_has_nothing_to_note(tmp_path: Path):
    with kmq.open(tmp_path / "source", maintenance=False) as source:
        source.create_topic("t")
    kmq.clone(tmp_path / "source", tmp_path / "clone")
    with kmq.open(tmp_path / "clone", read_only=True) as clone:
        assert clone.verify(deep=True).notes == []
