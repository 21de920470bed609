"""Verify names every damage by its place, and takes nothing for damage that is none."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.cli.command_line import main
from kmq_storage.format.manifest import Row
from kmq_storage.integrity.remains.commits import commits_left
from kmq_storage.log.disk.behind import go_on_behind
from kmq_storage.log.state.lost_ranges import Unnamed
from tests.damage.store import make_store
from tests.support.damage import flip
from tests.support.sources import ROOT


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify") / "store"
    make_store(folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


def _verified(folder: Path, *, deep: bool = True) -> kmq.Report:
    with kmq.open(folder, create=False, read_only=True) as store:
        return store.verify(deep)


def _segment(folder: Path) -> Path:
    return min((folder / "segments").rglob("*.arrow"))


def _flip_record(folder: Path) -> None:
    """In a segment of t-0, offsets 0 to 3."""
    segment = _segment(folder)
    flip(segment, segment.read_bytes().index(b"the log"))


@pytest.mark.parametrize("deep", [False, True])
def test_a_whole_store_is_whole(folder: Path, deep: bool):
    report = _verified(folder, deep=deep)
    assert (report.ok, report.damage, report.notes) == (True, [], [])


def test_the_golden_store_is_whole(tmp_path: Path):
    golden = shutil.copytree(ROOT / "tests" / "data" / "format-1", tmp_path / "golden")
    assert _verified(Path(golden)).damage == []


@pytest.mark.parametrize("name", ["clones/.tmp", "clones/notes.txt", "pins/notes.json"])
def test_a_file_of_somebody_else_is_no_damaged_clone_or_pin(folder: Path, name: str):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"not a file of a store")
    assert _verified(folder).damage == []


def test_verify_changes_no_byte(folder: Path):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    flip(_segment(folder), 700)
    before[_segment(folder)] = _segment(folder).read_bytes()
    _verified(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_damaged_batch_of_a_segment_is_named_by_file_topic_partition_and_offsets(folder: Path):
    _flip_record(folder)
    (damage,) = _verified(folder).damage
    assert damage.file == str(_segment(folder).relative_to(folder))
    assert (damage.topic, damage.partition, damage.start, damage.end) == ("t", 0, 0, 4)
    assert "checksum" in damage.reason


def test_without_deep_no_record_is_read(folder: Path):
    _flip_record(folder)
    assert _verified(folder, deep=False).ok


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("kind", ["segments", "staged", "pages"])
def test_a_missing_file_is_damage_with_or_without_deep(folder: Path, kind: str, is_folder: bool):
    unused = _verified(folder).unreferenced
    files = [path for path in sorted((folder / kind).rglob("*")) if path.is_file()]
    file = next(f for f in reversed(files) if str(f.relative_to(folder)) not in unused)
    if kind != "segments":  # the newest one: what only older checkpoints name may be missing
        file = max(files, key=lambda path: path.stat().st_mtime_ns)
    file.unlink()
    if is_folder:
        file.mkdir()
    for deep in (False, True):
        report = _verified(folder, deep=deep)
        assert not report.ok
        assert str(file.relative_to(folder)) in {damage.file for damage in report.damage}


def test_a_file_that_nobody_refers_to_is_told_and_is_no_damage(folder: Path):
    orphan = _segment(folder).with_name(f"{0:020d}-{'a' * 32}.arrow")
    orphan.write_bytes(b"left behind")
    (folder / "staged" / "half.ipc.tmp").write_bytes(b"")
    report = _verified(folder)
    assert report.ok
    assert {str(orphan.relative_to(folder)), "staged/half.ipc.tmp"} <= set(report.unreferenced)


@pytest.mark.parametrize("deep", [True, False])
def test_every_file_that_is_not_the_stores_is_told(folder: Path, deep: bool):
    before = set(_verified(folder, deep=deep).unreferenced)
    strange = {
        *("junk.txt", "kmq.json.bak", "kmq.json.tmp", "log/x.log.tmp", "log/zz", "new/sub/file"),
        *("checkpoints/x.arrow", "checkpoints/abc.tmp", "pins/zz.json", "slips/q"),
        *("log/00000000000000000001.log.bak", "clones/x.arrow"),
    }
    for name in strange:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"junk")
    report = _verified(folder, deep=deep)
    assert report.ok
    assert set(report.unreferenced) - before == strange


def test_a_damaged_commit_names_the_offsets_that_are_lost(folder: Path):
    with kmq.open(folder) as store, store.producer() as producer:
        producer.send("mapped", b"the last one", partition=1).result()
        first, last = store.offsets("mapped")[1]
    log = next(
        path for path in (folder / "log").glob("*.log") if b"the last one" in path.read_bytes()
    )
    with kmq.open(folder) as store, store.producer() as producer:
        producer.send("mapped", b"behind", partition=1).result()
    contents = log.read_bytes()
    flip(log, contents.rindex(b"KMQ1", 0, contents.index(b"the last one")) + 40)
    report = _verified(folder, deep=False)
    assert first < last
    assert ("mapped", 1, last - 1, last) in {
        (damage.topic, damage.partition, damage.start, damage.end) for damage in report.damage
    }


def test_nothing_is_called_damage_while_maintenance_moves_files(tmp_path: Path):
    stopped = threading.Event()
    with kmq.open(tmp_path) as store:
        store.create_topic("t", partitions=2)

        def work() -> None:
            with kmq.open(tmp_path) as other, other.producer() as producer:
                while not stopped.is_set():
                    producer.send("t", b"x" * 100).result()
                    other.seal()
                    other.compact("t")
                    other.checkpoint()
                    other.collect(grace=0)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for _ in range(15):
                report = store.verify(deep=True)
                assert report.damage == []
        finally:
            stopped.set()
            worker.join()


def test_the_command_ends_with_1_when_there_is_damage(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["--store", str(folder), "--json", "verify"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    _flip_record(folder)
    assert main(["--store", str(folder), "--json", "verify", "--deep"]) == 1
    (damage,) = json.loads(capsys.readouterr().out)["damage"]
    assert (damage["topic"], damage["partition"]) == ("t", 0)
    assert main(["--store", str(folder), "verify", "--deep"]) == 1
    assert "t-0, offsets 0 to 3" in capsys.readouterr().out
    assert main(["--store", str(folder), "verify"]) == 0
    assert "--deep looks at every record" in capsys.readouterr().out


def test_the_command_reports_a_store_that_cannot_be_opened(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    flip(folder / "kmq.json", 40, 16)
    assert main(["--store", str(folder), "--json", "verify"]) == 1
    (damage,) = json.loads(capsys.readouterr().out)["damage"]
    assert damage["file"] == "kmq.json"


# --- behind what counts, and around it --------------------------------------------------


@pytest.mark.parametrize("bytes_more", [-100, 1])
@pytest.mark.parametrize("which", [min, max])
def test_a_log_file_of_another_size_is_named_though_no_commit_is_lost(
    folder: Path, bytes_more: int, which: Callable[[Iterable[Path]], Path]
):
    log = which((folder / "log").glob("*.log"))
    os.truncate(log, log.stat().st_size + bytes_more)
    (damage,) = _verified(folder, deep=False).damage
    assert damage.file == f"log/{log.name}"
    assert "bytes and should have" in damage.reason


@pytest.mark.parametrize("more", [b"x", b"x" * 50 + b"ARROW1"])
def test_bytes_behind_the_end_of_a_staged_file_are_found(folder: Path, more: bytes):
    unused = set(_verified(folder).unreferenced)
    files = [
        each for each in (folder / "staged").glob("*.ipc") if f"staged/{each.name}" not in unused
    ]
    assert files
    for file in files:
        before = file.read_bytes()
        file.write_bytes(before + more)
        found = {damage.file for damage in _verified(folder).damage}
        file.write_bytes(before)
        assert found == {f"staged/{file.name}"}


def test_a_file_whose_records_were_moved_since_the_newest_checkpoint_is_looked_at(
    folder: Path,
):
    with kmq.open(folder, maintenance=False) as store:
        store.seal()
        store.checkpoint()
        before = store.read("t").read_all()
        moved = set((folder / "segments").rglob("*.arrow"))
        store.compact("t")
        live = {row.path(key) for key, row in _rows(store)}
        (old, *_) = sorted(file for file in moved if str(file.relative_to(folder)) not in live)
        flip(old, old.stat().st_size // 3)
        (damage,) = store.verify(deep=True).damage
        assert folder / damage.file == old
        assert store.repair(drop_damaged=True).damage == []
        assert store.read("t").read_all().equals(before)  # readers of today have another file


@pytest.mark.parametrize("place", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("collected", [False, True])
def test_a_segment_that_only_waits_to_be_collected_is_looked_at_and_its_damage_harms_nobody(
    tmp_path: Path, place: float, collected: bool
):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        for number in range(2):
            with store.producer() as producer:
                producer.send("t", b"value %d" % number * 99)
            store.seal()
        waiting = sorted((tmp_path / "segments").rglob("*.arrow"))
        store.compact("t")  # so no checkpoint ever names them
        if collected:
            go_on_behind(store.log.files, store.log.identity, store.log.environment, Unnamed())
            store.log.drop_before(store.log.reload().lsn + 1)
            assert list(commits_left(store.log.files, store.log.identity)) == []
        assert store.verify(deep=True).notes == []
        flip(waiting[0], int(waiting[0].stat().st_size * place))
        assert store.verify(deep=False).notes == []
        report = store.verify(deep=True)
        assert report.ok
        (note,) = report.notes
        assert note.startswith(str(waiting[0].relative_to(tmp_path)))
        assert "waits to be collected" in note


def _rows(store: kmq.Store) -> list[tuple[tuple[bytes, int], Row]]:
    return [
        ((topic.id, number), row)
        for topic in store.log.refresh().topics.values()
        for number, part in enumerate(topic.parts)
        for row in topic.index(number).rows(part.start, part.end)
    ]
