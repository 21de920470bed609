"""Files of the log behind the first one: what they are called, and where their frames stand.

Finds: names that get longer with their numbers, and so don't sort as these do, and a writer that
takes a number that counts through all files for a place in one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kmq_storage import paths
from kmq_storage.log.files.journal import Journal
from kmq_storage.maintenance.checkpointing import checkpoint
from tests.support.storage import FILE_BYTES, make_topic, open_folder, send, values_of

#: Around where 9, 10 and 19 digits end, and 1 GiB, of which a file had its name once.
_NUMBERS = sorted(
    [0, 1, *(10**digits + more for digits in (9, 10, 18) for more in (-1, 0, 1)), 2**30, 2**63 - 1]
)


#: What is called by an LSN or an offset.
_NAMES: dict[str, Callable[[int], str]] = {
    "log file": paths.log_file,
    "commit object": paths.commit_object,
    "collected mark": paths.collected_mark,
    "checkpoint": lambda lsn: paths.checkpoint_file(lsn, bytes(16)),
    "segment": lambda offset: paths.segment_file(bytes(16), 0, offset, bytes(16)),
}


@pytest.mark.parametrize("kind", _NAMES)
def test_names_of_files_sort_as_their_numbers_up_to_the_last_one(kind: str):
    name = _NAMES[kind]
    names = [name(number) for number in _NUMBERS]
    assert names == sorted(set(names))
    assert len(set(map(len, names))) == 1


def test_each_file_of_the_log_is_written_from_its_own_beginning_also_by_who_opens_it_later(
    tmp_path: Path,
):
    sent = [b"%02d" % number + b"x" * (FILE_BYTES // 3) for number in range(12)]
    make_topic(open_folder(tmp_path))
    for value in sent:  # each by a writer of its own
        send(open_folder(tmp_path), value)
    files = sorted((tmp_path / "log").glob("*.log"))
    assert len(files) > 4
    assert {file.stat().st_size for file in files} == {FILE_BYTES}
    assert all(file.read_bytes()[:4096].strip(b"\0") for file in files)
    assert values_of(open_folder(tmp_path)) == sent


def _counted_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of looks at frames of the log from now on."""
    looks, next_frame = [0], Journal.next_frame

    def counted(*arguments: Any, **options: Any) -> Any:
        looks[0] += 1
        return next_frame(*arguments, **options)

    monkeypatch.setattr(Journal, "next_frame", counted)
    return looks


def test_who_reads_the_newest_commits_again_and_again_does_not_pass_all_others_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log = open_folder(tmp_path)
    make_topic(log)
    for number in range(100):
        send(log, b"%d" % number)
    assert [commit.lsn for commit in log.commits(95)] == [*range(95, 102)]
    looks = _counted_looks(monkeypatch)
    assert [commit.lsn for commit in log.commits(95)] == [*range(95, 102)]
    send(log, b"new")
    assert [commit.lsn for commit in log.commits(102)] == [102]
    assert looks[0] < 40
    assert [commit.lsn for commit in log.commits(3)] == [*range(3, 103)]


def test_the_first_look_at_newest_commits_begins_at_the_checkpoint_that_the_handle_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log = open_folder(tmp_path)
    make_topic(log)
    for number in range(100):
        send(log, b"%d" % number)
    lsn = checkpoint(log).lsn
    send(log, b"new")
    log = open_folder(tmp_path)
    log.refresh()
    looks = _counted_looks(monkeypatch)
    assert [commit.lsn for commit in log.commits(lsn + 1)] == [lsn + 1]
    assert list(log.commits(lsn + 2)) == []
    assert looks[0] < 10
    assert [commit.lsn for commit in log.commits(lsn)] == [lsn, lsn + 1]
