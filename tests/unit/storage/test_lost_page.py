"""Damage in a log whose hint page is gone, or is of an earlier moment of this boot.

A backup taken while the store was written to has such a page, and so has a file system that went
down and came back. Later commits still tell what was on disk: that is damage, and no torn tail.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.files.journal import CollectedError, Journal, StoredFrame
from tests.support.storage import make_topic, open_folder, send, values_of

COMMITS, DAMAGED = 12, 7
VALUES = [b"value %02d" % number for number in range(COMMITS)]


@pytest.fixture(params=["gone", "of an earlier moment"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store whose page says nothing, or less than there is."""
    log, page = open_folder(tmp_path / "store"), tmp_path / "store" / "log" / "hint"
    make_topic(log, partitions=1)
    for number, value in enumerate(VALUES):
        send(log, value)
        if number == 2:
            shutil.copy(page, tmp_path / "earlier")
    log.close()
    if request.param == "gone":
        page.unlink()
    else:
        page.write_bytes((tmp_path / "earlier").read_bytes())
    return tmp_path / "store"


def _damage(folder: Path, part: str) -> None:
    """Change a byte of one commit: where its frame begins, or in its records; or have no commit."""
    (file,) = (folder / "log").glob("*.log")
    content = bytearray(file.read_bytes())
    at = content.index(VALUES[DAMAGED])
    if part != "records":
        at = content.rindex(b"KMQ", 0, at) + 8
    content[at] ^= 1
    if part == "all":
        begin, end = at - 8, content.index(VALUES[DAMAGED + 1])
        end = content.rindex(b"KMQ", 0, end)
        content[begin:end] = bytes(end - begin)
    file.write_bytes(content)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("part", ["header", "records", "all"])
def test_what_later_commits_show_to_be_damage_shortens_no_log(
    folder: Path, part: str, read_only: bool
):
    _damage(folder, part)
    with kmq.open(folder, read_only=read_only, maintenance=False) as store:
        assert store.offsets("t")[0] == (0, COMMITS)
        assert not store.verify(deep=True).ok
        assert store.offsets("t")[0] == (0, COMMITS)
        with pytest.raises(kmq.CorruptionError, match=f"t-0.* offsets {DAMAGED} to {DAMAGED}"):
            store.read("t").read_all()
        behind = store.read("t", start={0: DAMAGED + 1}).read_all()
    assert behind["value"].to_pylist() == VALUES[DAMAGED + 1 :]


@pytest.mark.parametrize("part", ["header", "records", "all"])
def test_a_writer_cuts_nothing_of_it_and_gives_no_offset_out_again(folder: Path, part: str):
    _damage(folder, part)
    with kmq.open(folder, maintenance=False) as store, store.producer() as producer:
        assert producer.send("t", b"next", partition=0).result(10).offset == COMMITS
        behind = store.read("t", start={0: DAMAGED + 1}).read_all()
    assert behind["value"].to_pylist() == [*VALUES[DAMAGED + 1 :], b"next"]


@pytest.mark.parametrize("read_only", [True, False])
def test_what_was_shown_without_the_page_is_not_taken_back(folder: Path, read_only: bool):
    log = open_folder(folder, read_only=read_only)
    assert values_of(log) == VALUES
    log.reload()  # as `verify` does, and whoever begins anew at a newer checkpoint
    assert values_of(log) == VALUES


@pytest.mark.parametrize("call", ["locate", "try_resync"])
def test_who_judges_the_end_while_the_log_is_collected_begins_anew(
    folder: Path, call: str, monkeypatch: pytest.MonkeyPatch
):
    _damage(folder, "header")
    original, times = getattr(Journal, call), 0

    def collected_meanwhile(
        journal: Journal, cursor: Cursor
    ) -> Cursor | tuple[Cursor, StoredFrame] | None:
        nonlocal times
        if cursor.lsn == DAMAGED + 1:
            times += 1
            if times in (2, 5):
                raise CollectedError
        found: Cursor | tuple[Cursor, StoredFrame] | None = original(journal, cursor)
        return found

    monkeypatch.setattr(Journal, call, collected_meanwhile)
    log = open_folder(folder, read_only=True)
    assert log.refresh().topic("t").partition(0).end == COMMITS
    assert times > 1


def test_a_store_without_page_is_read_though_files_of_its_log_were_collected(tmp_path: Path):
    big = b"x" * 1_000_000
    with kmq.open(tmp_path, maintenance=False) as store, store.producer() as producer:
        store.create_topic("t", max_record_bytes=len(big) + 1)
        producer.send_batch("t", [big, big]).result(10)  # in a staged file
        store.seal()
        store.checkpoint()
        assert store.collect(grace=0).files == 1
        producer.send("t", b"later").result(10)
    (tmp_path / "log" / "hint").unlink()
    with kmq.open(tmp_path, read_only=True) as store:
        assert store.read("t", columns=["offset"]).read_all().num_rows == 3
        assert store.verify(deep=True).ok
