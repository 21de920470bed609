"""Several processes on one store: stopped ones, killed ones, forked ones; read-only ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kmq_storage import limits
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import (
    ClosedError,
    CommitOutcomeUnknownError,
    FormatVersionError,
    IllegalStateError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from kmq_storage.log.files.locking import AppendLock
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk
from kmq_storage.objects.memory import memory_disk
from tests.support.garbage import kept_garbage
from tests.support.newer import make_newer
from tests.support.processes import exit_codes, start_python
from tests.support.storage import make_topic, open_folder, open_log, send, values_of

_HOLD = """
import sys
from pathlib import Path
from kmq_storage.objects.local import LocalDisk
lock = LocalDisk(Path(sys.argv[1])).open_lock(sys.argv[2])
assert lock.try_acquire()
print("held", flush=True)
sys.stdin.read()
"""
_HANG = """
import sys, threading
lock = threading.Lock()
lock.acquire()
open(sys.argv[1], "w").close()
lock.acquire()
"""
_SEND = """
import sys
from pathlib import Path
from tests.support.storage import open_folder, send
log = open_folder(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    send(log, f"{sys.argv[2]} {number}".encode(), partition=number % 2)
"""


@pytest.fixture
def stopped_holder(tmp_path: Path, request: pytest.FixtureRequest):
    """A process that holds a lock of the store and is stopped, not dead."""
    make_topic(open_folder(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path), request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    process.send_signal(signal.SIGSTOP)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("stopped_holder", ["locks/append.lock"], indirect=True)
def test_a_stopped_holder_of_the_append_lock_is_named_and_nothing_is_stolen(
    stopped_holder: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "LOCK_TIMEOUT", 0.3)
    log = open_folder(tmp_path)
    with pytest.raises(UnavailableError, match=f"process {stopped_holder.pid} holds the append"):
        send(log, b"x")
    assert values_of(log) == []
    assert not log.files.open_lock("locks/append.lock").try_acquire()
    stopped_holder.kill()
    stopped_holder.wait()
    monkeypatch.setattr(limits, "LOCK_TIMEOUT", 10.0)
    send(log, b"y")
    assert values_of(log) == [b"y"]


@pytest.mark.parametrize("stopped_holder", ["locks/sync.lock"], indirect=True)
def test_a_stopped_holder_of_the_sync_lock_leaves_the_outcome_unknown(
    stopped_holder: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "LOCK_TIMEOUT", 0.3)
    log = open_folder(tmp_path)
    named = f"process {stopped_holder.pid} holds the sync"
    with pytest.raises(CommitOutcomeUnknownError, match=named):
        send(log, b"x")
    stopped_holder.kill()
    stopped_holder.wait()
    assert values_of(log) == [b"x"]


def test_several_processes_write_at_once_and_every_record_is_there_once(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)
    children = [start_python(_SEND, str(tmp_path), str(n), "40") for n in range(3)]
    assert exit_codes(children) == [0, 0, 0]
    for partition in (0, 1):
        values = values_of(log, partition)
        for writer in range(3):
            mine = [int(v.split()[1]) for v in values if v.startswith(b"%d " % writer)]
            assert mine == list(range(partition, 40, 2))


def test_a_child_that_hangs_is_told_with_its_stack(tmp_path: Path):
    child = start_python(_HANG, str(tmp_path / "begun"))
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    with pytest.raises(AssertionError, match=r"(?s)a child hangs.*<string>., line 6"):
        exit_codes([child], seconds=0.1)


def test_threads_of_one_handle_write_at_once(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)

    def write(name: int) -> None:
        for number in range(25):
            send(log, b"%d %d" % (name, number))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*values_of(log)}) == 100


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_writes_and_reads_with_the_handle_it_inherited(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)
    send(log, b"before")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            send(log, b"child")
            status = 0 if b"child" in values_of(log) else 2
        finally:
            os._exit(status)
    send(log, b"parent")
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(values_of(log)) == [b"before", b"child", b"parent"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_under_the_append_lock_does_not_hold_it(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)
    with AppendLock(log.files, log._hint, SYSTEM):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        send(log, b"goes on")
        assert values_of(log) == [b"goes on"]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_waiting_reader_is_woken_by_another_handle(tmp_path: Path):
    log, other = open_folder(tmp_path), open_folder(tmp_path)
    make_topic(log)
    lsn = log.refresh().lsn
    assert not log.wait(lsn, 0.02)
    writer = threading.Timer(0.05, lambda: send(other, b"x"))
    writer.start()
    assert log.wait(lsn, 60.0)
    writer.join()


def test_a_reader_that_is_ahead_of_the_page_waits_without_spinning(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)
    with kept_garbage():
        begin = time.thread_time()
        assert not log.wait(log.refresh().lsn + 5, 0.4)
        assert time.thread_time() - begin < 0.1


def test_a_read_only_handle_reads_and_refuses_to_write(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)
    send(log, b"one")
    reader = open_folder(tmp_path, read_only=True)
    assert values_of(reader) == [b"one"]
    with pytest.raises(IllegalStateError, match="read-only"):
        send(reader, b"x")
    send(log, b"two")
    assert values_of(reader) == [b"one", b"two"]


def test_who_comes_to_read_while_another_process_syncs_sees_what_that_brings_to_disk(
    tmp_path: Path,
):
    log = open_folder(tmp_path, durable=False)
    make_topic(log)
    hint = log._hint

    def sync() -> None:
        with hint.syncing():
            begun.set()
            time.sleep(0.1)
        hint.publish_synced(hint.written or 0)

    begun, syncing = threading.Event(), threading.Thread(target=sync)
    syncing.start()
    begun.wait()
    assert open_folder(tmp_path, read_only=True).refresh().topics
    syncing.join()


def test_a_read_only_handle_sees_old_commits_only_where_nobody_ends_a_sync(tmp_path: Path):
    log = open_folder(tmp_path, durable=False)
    make_topic(log)
    with suppress(KeyboardInterrupt), log._hint.syncing():
        raise KeyboardInterrupt  # as who is killed
    assert not open_folder(tmp_path, read_only=True).refresh().topics


def test_a_read_only_handle_follows_a_store_without_hint_page_and_does_not_spin(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)
    send(log, b"one")
    (tmp_path / "log" / "hint").unlink()
    reader = open_folder(tmp_path, read_only=True)
    assert values_of(reader) == [b"one"]
    with kept_garbage():
        begin = time.thread_time()
        assert not reader.wait(reader.refresh().lsn, 0.4)
        assert time.thread_time() - begin < 0.2
    send(open_folder(tmp_path), b"y" * 60_000)
    assert values_of(reader) == [b"one", b"y" * 60_000]


def test_a_read_only_handle_reads_a_store_whose_hint_page_has_the_words_of_the_first_version(
    tmp_path: Path,
):
    log = open_folder(tmp_path, durable=False)
    make_topic(log)
    send(log, b"one")
    os.truncate(tmp_path / "log" / "hint", 8 * 8)
    assert values_of(open_folder(tmp_path, read_only=True)) == [b"one"]


def test_a_reader_that_waits_rehearses_when_a_commit_is_prepared(tmp_path: Path):
    log = open_folder(tmp_path)
    make_topic(log)
    send(log, b"one")
    reader, rehearsed = open_folder(tmp_path), threading.Event()
    lsn = reader.refresh().lsn
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.wait, lsn, 20.0, rehearse=rehearsed.set)
        while not rehearsed.wait(0.01):
            log.written_state()
        assert not waiting.done()
        send(log, b"two")
        assert waiting.result(10.0)
    assert values_of(reader) == [b"one", b"two"]


def test_a_read_only_handle_makes_no_store(tmp_path: Path):
    with pytest.raises(NotFoundError):
        open_log(LocalDisk(tmp_path / "none", read_only=True))
    with pytest.raises(NotFoundError):
        open_log(memory_disk("never made", read_only=True))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("below", ["", "inside"])
def test_a_store_that_is_a_file_is_refused(tmp_path: Path, read_only: bool, below: str):
    (tmp_path / "file").write_text("text")
    disk = LocalDisk(tmp_path / "file" / below, read_only=read_only)
    with pytest.raises(InvalidRequestError, match="is a file, not a folder"):
        open_identity(disk, SYSTEM, create=True)


def test_a_closed_handle_says_so(tmp_path: Path):
    log = open_folder(tmp_path)
    log.close()
    for call in (log.refresh, log.written_state, lambda: log.wait(0, 1.0)):
        with pytest.raises(ClosedError):
            call()


def test_a_store_of_a_newer_format_is_not_opened(tmp_path: Path):
    open_folder(tmp_path)
    newest = limits.CLONE_FORMAT_VERSION
    make_newer(tmp_path, newest + 1)
    with pytest.raises(FormatVersionError, match=f"this kmq reads up to {newest}"):
        open_identity(LocalDisk(tmp_path), SYSTEM, create=True)


@pytest.mark.parametrize("at", range(1, 9))
def test_an_interrupted_refresh_neither_goes_back_nor_applies_a_commit_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
):
    log = open_folder(tmp_path)
    make_topic(log)
    for number in range(4):
        send(log, b"%d" % number)
    reader = open_folder(tmp_path)
    assert reader.refresh().lsn == 5
    send(log, b"4")
    original, applied = StoreState._apply_records, []

    def interrupted(*arguments: Any) -> None:
        original(*arguments)
        applied.append(arguments)
        if len(applied) in (1, at):  # the second time in the replay that the first one needs
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreState, "_apply_records", interrupted)
        for _ in range(2):
            with suppress(KeyboardInterrupt):
                reader.refresh()
            assert reader.state.lsn >= 5
            assert reader.state.topic("t").partition(0).end >= 4
    assert values_of(reader) == [b"0", b"1", b"2", b"3", b"4"]
