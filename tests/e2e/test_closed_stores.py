"""A closed store keeps nothing open, so its file system can be unmounted; what was read stays.

Finds descriptors and maps that live as long as somebody has the `Store`, or what it gave out.
"""

from __future__ import annotations

import errno
import gc
import threading
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.support.failing_disk import FailingDisk
from tests.support.open_files import open_files
from tests.support.storage import FILE_BYTES, open_log


def _maps(folder: Path) -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split()[-1] for line in lines if str(folder) in line]


def _used(folder: Path) -> kmq.Store:
    store = kmq.open(folder, maintenance=False)
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"x" * 1000] * 3000).result(10)
        producer.send("t", b"small").result(10)
    store.seal()
    store.checkpoint()
    with store.producer() as producer:
        producer.send("t", b"in the log").result(10)
    with store.consumer("g", topics="t") as consumer:
        assert consumer.consume(10, timeout=10)
        consumer.commit()
    return store


def test_a_closed_store_has_no_file_open_and_none_mapped(tmp_path: Path):
    store = _used(tmp_path)
    assert open_files(tmp_path)
    assert _maps(tmp_path)
    store.close()
    gc.collect()
    assert open_files(tmp_path) == []
    assert _maps(tmp_path) == []
    with pytest.raises(kmq.ClosedError):
        store.topics()
    store.close()


def test_a_closed_consumer_has_no_file_open_and_none_mapped_though_somebody_has_it(tmp_path: Path):
    store = _used(tmp_path)
    with store.consumer(topics="t") as consumer:
        assert consumer.poll(10)
    store.close()
    gc.collect()
    assert open_files(tmp_path) == []
    assert _maps(tmp_path) == []
    with pytest.raises(kmq.ClosedError):
        consumer.poll()


def test_commits_that_are_read_on_after_their_store_was_closed_are_an_error(tmp_path: Path):
    store = _used(tmp_path)
    commits = store.commits()
    next(commits)
    store.close()
    with pytest.raises(kmq.ClosedError):
        next(commits)
    gc.collect()
    assert open_files(tmp_path) == []
    assert _maps(tmp_path) == []


def test_batches_outlive_their_store_and_hold_no_file_open(tmp_path: Path):
    store = _used(tmp_path)
    table = store.read("t").read_all()
    store.close()
    gc.collect()
    assert open_files(tmp_path) == []
    assert table["value"].to_pylist() == [*[b"x" * 1000] * 3000, b"small", b"in the log"]
    del table
    gc.collect()
    assert _maps(tmp_path) == []


@pytest.mark.parametrize("failing", ["write", "create"])
def test_a_kept_error_of_a_full_disk_keeps_nothing_open(tmp_path: Path, failing: str):
    """What came through the frames of a traceback lives as long as the error does."""
    disk = FailingDisk(tmp_path)
    store = kmq.Store(open_log(disk), maintenance=False)
    store.create_topic("t")
    producer = store.producer()
    disk.failing[failing] = errno.ENOSPC
    value = b"x" * (FILE_BYTES // 2 if failing == "create" else 1000)
    with pytest.raises(kmq.UnavailableError, match="is full") as raised:
        for _ in range(4):
            producer.send_batch("t", [value]).result(10)
    disk.failing.clear()
    producer.close()
    store.close()
    gc.collect()
    assert raised.value.__traceback__
    assert open_files(tmp_path) == []
    assert _maps(tmp_path) == []


def test_who_waits_is_told_that_the_store_is_closed(tmp_path: Path):
    store = _used(tmp_path)
    told: list[BaseException] = []
    last = store.log.refresh().lsn

    def wait() -> None:
        try:
            store.log.wait(last, 60.0)
        except kmq.ClosedError as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    store.close()
    waiting.join(30)
    assert len(told) == 1
