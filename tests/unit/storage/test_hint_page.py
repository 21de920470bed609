"""The hint page speeds up and is never trusted: garbage in it loses and invents nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kmq_storage.errors import CorruptionError
from tests.support.storage import make_topic, open_folder, send, values_of

PAGES = {
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    **{f"random {n}": random.Random(n).randbytes(64) for n in range(6)},
}


def _scribble(folder: Path, page: bytes) -> None:
    with open(folder / "log" / "hint", "r+b") as file:
        file.write(page)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("durable", [True, False])
def test_garbage_while_handles_are_open_changes_nothing(tmp_path: Path, page: str, durable: bool):
    writer, reader = (open_folder(tmp_path, durable=durable) for _ in range(2))
    make_topic(writer)
    expected = []
    for number in range(12):
        value = b"%d" % number * 3_000  # several log files
        send(writer if number % 3 else reader, value)
        expected.append(value)
        _scribble(tmp_path, PAGES[page])
        if number % 2:
            assert values_of(reader) == expected
    assert values_of(writer) == values_of(open_folder(tmp_path)) == expected


@pytest.mark.parametrize("page", PAGES)
def test_garbage_between_runs_changes_nothing(tmp_path: Path, page: str):
    expected = []
    for number in range(4):
        log = open_folder(tmp_path)
        if number == 0:
            make_topic(log)
        send(log, b"%d" % number)
        expected.append(b"%d" % number)
        log.close()
        _scribble(tmp_path, PAGES[page])
        assert values_of(open_folder(tmp_path)) == expected
        _scribble(tmp_path, PAGES[page])
        assert values_of(open_folder(tmp_path, read_only=True)) == expected


@pytest.mark.parametrize("page", PAGES)
def test_a_page_that_is_damaged_twice_in_the_same_way_hides_no_new_files(tmp_path: Path, page: str):
    first = open_folder(tmp_path)
    make_topic(first)
    send(first, b"0")
    _scribble(tmp_path, PAGES[page])
    first.refresh()  # what nobody knows to be on disk is written again, into new files
    second = open_folder(tmp_path)
    second.written_state()
    _scribble(tmp_path, PAGES[page])
    first.refresh()
    send(second, b"1")
    assert values_of(open_folder(tmp_path)) == [b"0", b"1"]


def test_a_page_of_an_earlier_moment_takes_nothing_back(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)
    page = (tmp_path / "log" / "hint").read_bytes()
    for number in range(5):
        send(log, b"%d" % number * 20_000)
    _scribble(tmp_path, page)
    other = open_folder(tmp_path)
    send(other, b"next")
    assert len(values_of(other)) == len(values_of(log)) == 6


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_who_opens_reads_to_the_end_though_the_page_is_of_an_earlier_moment(
    tmp_path: Path, read_only: bool, durable: bool
):
    """So it is when a file system goes down and comes back without a start of the machine."""
    log = open_folder(tmp_path)
    make_topic(log)
    send(log, b"one")
    page = (tmp_path / "log" / "hint").read_bytes()
    send(log, b"two" * 20_000)
    send(log, b"three" * 10_000)  # in another log file
    log.close()
    _scribble(tmp_path, page)
    reader = open_folder(tmp_path, read_only=read_only, durable=durable)
    assert values_of(reader) == [b"one", b"two" * 20_000, b"three" * 10_000]
    send(open_folder(tmp_path), b"four")
    assert values_of(reader)[3:] == [b"four"]


def test_who_opens_shows_nothing_of_what_is_being_written(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)
    send(log, b"one")
    with log._end:  # whoever has the append lock shows what it writes
        end = log._end.cursor.position
        with (tmp_path / "log" / f"{1:020d}.log").open("r+b") as file:
            file.seek(end)
            file.write(b"KMQ1")
        assert values_of(open_folder(tmp_path)) == [b"one"]
    assert values_of(open_folder(tmp_path, read_only=True)) == [b"one"]
    assert log._end.journal.has_bytes_at(log._end.cursor)
    assert values_of(open_folder(tmp_path)) == [b"one"]
    assert not log._end.journal.has_bytes_at(log._end.cursor)


def test_a_page_that_promises_more_than_there_is_raises_an_alarm(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)
    send(log, b"one")
    log._hint.publish_written(9)
    log._hint.publish_synced(9)
    with pytest.raises(CorruptionError, match="frames are missing"):
        send(log, b"two")
    assert values_of(open_folder(tmp_path)) == [b"one"]
