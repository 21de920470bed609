"""What a crash leaves behind the last durable commit is cut, and nothing else is."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kmq_storage.errors import CorruptionError
from kmq_storage.log.commit_log import CommitLog
from tests.support.storage import FILE_BYTES, make_topic, open_folder, send, values_of

FIRST_FILE = "log/00000000000000000001.log"
RESTS = {
    "zeros": lambda rng, length: bytes(length),
    "garbage": lambda rng, length: rng.randbytes(length),
    "old frames": lambda rng, length: (b"KMQ1" + rng.randbytes(60)) * (length // 64 + 1),
}


def _written(folder: Path) -> tuple[bytes, int, int]:
    """A store with two records; its log file, and where the last frame begins and ends."""
    log = open_folder(folder)
    make_topic(log)
    send(log, b"first")
    begin = _end(log)
    send(log, b"last" * 100)
    end = _end(log)
    return (folder / FIRST_FILE).read_bytes(), begin, end


def _end(log: CommitLog) -> int:
    return log._end.cursor.position


def _restart(folder: Path, content: bytes) -> CommitLog:
    """As after a start of the machine: no hint page, and this in the log file."""
    (folder / "log" / "hint").unlink(missing_ok=True)
    (folder / FIRST_FILE).write_bytes(content)
    return open_folder(folder)


@pytest.mark.parametrize("rest", RESTS)
def test_a_last_frame_torn_anywhere_is_cut_and_the_log_goes_on(tmp_path: Path, rest: str):
    content, begin, end = _written(tmp_path / "store")
    rng = random.Random(1)
    # Every eighth byte, and every byte around header, directory and trailer.
    places = {*range(begin, end, 8), *range(begin, begin + 8), *range(end - 10, end)}
    for place in sorted(places):
        filler = RESTS[rest](rng, end - place)[: end - place]
        torn = content[:place] + filler + content[end:]
        if torn == content:
            continue
        log = _restart(tmp_path / "store", torn)
        values = values_of(log)
        assert values in ([b"first"], [b"first", b"last" * 100])
        whole = torn[begin:end] == content[begin:end] or len(values) == 2
        assert whole == (len(values) == 2)
        if not whole:
            send(log, b"next")
            assert values_of(open_folder(tmp_path / "store")) == [b"first", b"next"]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_shorter_than_it_was_made_is_damage_and_no_torn_tail(
    tmp_path: Path, read_only: bool
):
    content, begin, end = _written(tmp_path / "store")
    for size in (0, begin, begin + 1, end - 64, end, end + 1, FILE_BYTES - 1):
        _restart(tmp_path / "store", content[:size])
        log = open_folder(tmp_path / "store", read_only=read_only)
        state = log.refresh()
        assert state.lsn == (0 if size < begin else 2 if size < end else 3)
        with pytest.raises(CorruptionError, match="can't be read"):
            state.check_end("t", 0)
        if not read_only:
            with pytest.raises(CorruptionError, match="put it back from a copy"):
                send(log, b"next")
            assert (tmp_path / "store" / FIRST_FILE).stat().st_size == size
    _restart(tmp_path / "store", content)
    assert values_of(open_folder(tmp_path / "store")) == [b"first", b"last" * 100]


def test_a_file_cut_short_behind_all_that_was_written_is_followed_by_a_new_one(tmp_path: Path):
    """The hint page of this boot says that nothing is missing."""
    content, _, end = _written(tmp_path / "store")
    (tmp_path / "store" / FIRST_FILE).write_bytes(content[: end + 64])
    log = open_folder(tmp_path / "store")
    send(log, b"next")
    (tmp_path / "store" / "log" / "hint").unlink()
    assert values_of(open_folder(tmp_path / "store")) == [b"first", b"last" * 100, b"next"]
    sizes = [path.stat().st_size for path in sorted((tmp_path / "store" / "log").glob("*.log"))]
    assert sizes == [end + 64, FILE_BYTES]


def test_a_cut_leaves_zeros_to_the_end_of_the_file(tmp_path: Path):
    content, begin, _ = _written(tmp_path / "store")
    damaged = content[: begin + 200] + b"\x55" * (FILE_BYTES - begin - 200)
    log = _restart(tmp_path / "store", damaged)
    assert values_of(log) == [b"first"]
    assert (tmp_path / "store" / FIRST_FILE).read_bytes() == content[:begin] + bytes(
        FILE_BYTES - begin
    )


def test_a_writer_that_died_in_the_middle_of_a_frame_is_written_over(tmp_path: Path):
    log = open_folder(tmp_path / "store")
    make_topic(log)
    send(log, b"first")
    end = _end(log)
    with open(tmp_path / "store" / FIRST_FILE, "r+b") as file:  # same boot, the hint page is valid
        file.seek(end)
        file.write(b"KMQ1" + b"\x77" * 300)
    send(log, b"next")
    assert values_of(open_folder(tmp_path / "store")) == [b"first", b"next"]


def test_the_name_of_a_file_whose_maker_died_is_on_disk_before_its_first_frame_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log = open_folder(tmp_path)
    make_topic(log)
    end = log._end.cursor.lsn
    (tmp_path / f"log/{end + 1:020d}.log").write_bytes(bytes(FILE_BYTES))  # and no more
    other = open_folder(tmp_path)
    synced: list[str] = []
    sync_names = other.files.sync_names
    monkeypatch.setattr(
        other.files, "sync_names", lambda folder: (synced.append(folder), sync_names(folder))
    )
    send(other, b"value")
    assert "log" in synced
    assert other._end.cursor.file == end + 1
    assert values_of(open_folder(tmp_path)) == [b"value"]


def test_log_files_behind_a_torn_tail_are_removed(tmp_path: Path):
    content, begin, end = _written(tmp_path / "store")
    folder = tmp_path / "store"
    shutil.copy(folder / FIRST_FILE, folder / "log" / f"{7:020d}.log")
    log = _restart(folder, content[:begin] + bytes(end - begin) + content[end:])
    assert values_of(log) == [b"first"]
    send(log, *[b"x"] * 3)
    assert sorted(path.name for path in (folder / "log").glob("*.log")) == [Path(FIRST_FILE).name]


def test_a_torn_frame_that_was_known_to_be_durable_is_damage_and_not_cut(tmp_path: Path):
    folder = tmp_path / "store"
    content, begin, end = _written(folder)
    torn = content[: begin + 40] + bytes(end - begin - 40) + content[end:]
    (folder / FIRST_FILE).write_bytes(torn)  # the hint page still says that commit 3 is on disk
    log = open_folder(folder)
    state = log.refresh()
    assert values_of(log) == [b"first"]
    with pytest.raises(CorruptionError, match="t-0: what follows offset 1 can't be read"):
        state.check_end("t", 0)
    with pytest.raises(CorruptionError, match="commit 3 in log/"):
        send(log, b"next")
    assert (folder / FIRST_FILE).read_bytes() == torn
