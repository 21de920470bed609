"""A damaged commit behind the last sync.

Finds: a log that nobody can sync, read or repair, and a repair that takes for durable what is not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.cli.command_line import main
from kmq_storage.log.state.lost_ranges import Unnamed
from tests.support.damage import flip
from tests.support.failing_disk import FailingDisk
from tests.support.storage import make_topic, open_log, send, values_of

LOG = "log/00000000000000000001.log"


def _flip_the_header(log: Path, start: int, _end: int) -> None:
    flip(log, start + 20)


def _flip_the_directory(log: Path, start: int, _end: int) -> None:
    flip(log, start + 140)


def _lose(log: Path, start: int, end: int) -> None:
    with log.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))


HARMS = [_flip_the_header, _flip_the_directory, _lose]
harmed = pytest.mark.parametrize("harm", HARMS)


def _written(folder: Path, harm: Callable[[Path, int, int], None], lsn: int) -> FailingDisk:
    """Nothing is synced: the topic, b"0" staged, b"1", b"2" staged, b"3", in partitions 0 and 1."""
    disk = FailingDisk(folder)
    log = open_log(disk, durable=False)
    make_topic(log)
    for value in range(4):
        send(log, b"%d" % value, partition=value % 2, staged=value % 2 == 0)
    log.close()
    contents = (folder / LOG).read_bytes()
    begins = [at for at in range(0, len(contents), 64) if contents.startswith(b"KMQ1", at)]
    harm(folder / LOG, *[*begins, begins[-1] + 4096][lsn - 1 : lsn + 1])
    return FailingDisk(folder)


@harmed
@pytest.mark.parametrize("read_only", [False, True])
def test_a_damaged_commit_that_is_not_synced_hides_no_other(
    tmp_path: Path, harm: Callable[[Path, int, int], None], read_only: bool
):
    _written(tmp_path, harm, 3)
    with kmq.open(tmp_path, read_only=read_only) as store:
        assert store.read("t", partitions=[0]).read_all()["value"].to_pylist() == [b"0", b"2"]
        with pytest.raises(kmq.CorruptionError, match="t-1: offsets 0 to 0 can't be read"):
            store.read("t", partitions=[1]).read_all()
        assert store.read("t", start={1: 1}).read_all()["value"].to_pylist()[-1] == b"3"


@harmed
@pytest.mark.parametrize("lsn", [2, 3, 4, 5])
def test_the_command_repairs_a_store_whose_damaged_commit_is_not_synced(
    tmp_path: Path, harm: Callable[[Path, int, int], None], lsn: int
):
    _written(tmp_path, harm, lsn)
    assert main(["--store", str(tmp_path), "verify"]) == 1
    assert main(["--store", str(tmp_path), "repair", "--drop-damaged"]) == 0
    with kmq.open(tmp_path) as store:
        whole = 1 - lsn % 2
        found = store.read("t", partitions=[whole], end={whole: 2}).read_all()
        assert found["value"].to_pylist() == [b"%d" % whole, b"%d" % (whole + 2)]
        with pytest.raises(kmq.DataLossError):
            store.read("t", partitions=[1 - whole]).read_all()
        store.producer().send("t", b"after", partition=whole).result()
        assert store.verify(deep=True).ok


@harmed
def test_staged_files_behind_a_damaged_commit_come_to_disk_with_their_commits(
    tmp_path: Path, harm: Callable[[Path, int, int], None], monkeypatch: pytest.MonkeyPatch
):
    disk = _written(tmp_path, harm, 3)
    synced: set[str] = set()
    monkeypatch.setattr(disk, "sync_staged", synced.update)
    assert values_of(open_log(disk, create=False)) == [b"0", b"2"]
    assert synced == {f"staged/{file.name}" for file in (tmp_path / "staged").iterdir()}
    assert len(synced) == 2


@harmed
def test_a_repair_brings_staged_files_to_disk_before_its_checkpoint_names_them(
    tmp_path: Path, harm: Callable[[Path, int, int], None]
):
    disk = _written(tmp_path, harm, 3)
    log = open_log(disk, create=False, durable=False)
    log.refresh()
    disk.calls.clear()
    log.go_on_behind(Unnamed())
    assert disk.calls[0] == "sync staged"
    assert "stage synced" in disk.calls[1:]
