"""The contract of `Disk` on a folder, and what only processes can show.

Finds locks that outlive their holder or that a forked child holds too, names that two processes
win, and wake-ups that do not cross processes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kmq_storage import limits
from kmq_storage.objects import file_io, local, new_file
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.files import Bytes
from kmq_storage.objects.local import LocalDisk
from tests.contract.disk_contract import SIZE, DiskContract
from tests.support.open_files import open_files

_HOLD = """
import sys
from pathlib import Path
from kmq_storage.objects.local import LocalDisk
lock = LocalDisk(Path(sys.argv[1])).open_lock("locks/a.lock")
assert lock.try_acquire()
print("held", flush=True)
sys.stdin.read()
"""
_PUBLISH = """
import sys
from pathlib import Path
from kmq_storage.objects.local import LocalDisk
disk = LocalDisk(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
won = [n for n in range(200) if disk.publish(f"names/{n}", [sys.argv[2].encode()], sync=False)]
print(*won)
"""
#: Stages a large file when the interpreter begins no threads any more.
_STAGE_LATE = """
import atexit, sys
from pathlib import Path
from threading import Thread, main_thread
from kmq_storage.objects.local import LocalDisk
disk = LocalDisk(Path(sys.argv[1]))
def stage(name, wait=lambda: None):
    wait()
    disk.stage(name, [bytes(1 << 24)], sync=True)
atexit.register(stage, "staged/at exit")
Thread(target=stage, args=("staged/by a thread", main_thread().join)).start()
"""


def _start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _in_child(work: Callable[[], bool]) -> bool:
    """Whether the work holds in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


class TestLocalDisk(DiskContract):
    @pytest.fixture
    def disk(self, tmp_path: Path) -> LocalDisk:
        return LocalDisk(tmp_path / "store")

    @pytest.fixture
    def files(self, disk: Disk) -> Disk:
        return disk

    def test_a_lock_is_free_after_kill_9_and_named_its_holder_before(self, disk: LocalDisk):
        with _start(_HOLD, disk.url) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            lock = disk.open_lock("locks/a.lock")
            assert not lock.try_acquire()
            assert lock.holder() == f"process {process.pid}"
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert _eventually(lock.try_acquire)
        lock.release()

    def test_two_processes_never_win_the_same_name(self, disk: LocalDisk):
        processes = [_start(_PUBLISH, disk.url, str(n)) for n in range(3)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.communicate()[0].split() for process in processes]
        won = [name for answer in answers for name in answer]
        assert sorted(won, key=int) == [str(n) for n in range(200)]
        for number, answer in enumerate(answers):
            assert all(disk.read(f"names/{name}") == str(number).encode() for name in answer)

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_a_forked_child_does_not_hold_its_parents_lock(self, disk: LocalDisk):
        lock = disk.open_lock("locks/a.lock")
        assert lock.try_acquire()
        assert _in_child(lambda: not lock.try_acquire())
        lock.release()
        assert _in_child(lock.try_acquire)
        assert lock.try_acquire()
        lock.release()

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_words_that_a_file_of_an_older_version_lacks_are_zeros_to_who_reads(
        self, disk: LocalDisk
    ):
        disk.open_words("log/hint", 8).store(7, 5)
        words = LocalDisk(disk.root, read_only=True).open_words("log/hint", 9)
        assert [words.load(7), words.load(8), *words.loaded(7, 2)] == [5, 0, 5, 0]

    def test_words_are_shared_with_another_process(self, disk: LocalDisk):
        words = disk.open_words("log/hint", 8)

        def store() -> bool:
            others = LocalDisk(disk.root).open_words("log/hint", 8)
            others.store(2, 99)
            others.wake(2)
            return True

        assert _in_child(store)
        assert words.load(2) == 99

    def test_a_write_that_fails_while_more_is_made_is_told_and_leaves_no_file(
        self, disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
    ):
        def write_all(fd: int, position: int, buffers: Sequence[Bytes]) -> None:
            if position:
                raise OSError(errno.EIO, "the disk is gone")
            file_io.write_all(fd, position, buffers)

        monkeypatch.setattr(new_file, "write_all", write_all)
        opened = open_files(disk.root)
        with pytest.raises(OSError, match="the disk is gone"):
            disk.stage("staged/a.ipc", repeat(bytes(limits.WRITE_BYTES), 9), sync=True)
        assert open_files(disk.root) == opened
        assert disk.list("staged") == []

    def test_a_frame_of_very_many_pieces_is_written_with_few_looks_at_each(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        looks = [0]

        class Piece(bytes):
            def __len__(self) -> int:
                looks[0] += 1
                return super().__len__()

            def __getitem__(self, part: Any) -> Any:
                return Piece(super().__getitem__(part))

        def pwritev(fd: int, pieces: Sequence[bytes], position: int) -> int:
            joined = b"".join(pieces)
            return os.pwrite(fd, joined[:-3] or joined, position)  # 3 bytes are left each time

        monkeypatch.setattr(file_io, "memoryview", Piece, raising=False)
        monkeypatch.setattr(file_io, "os", SimpleNamespace(pwritev=pwritev))
        pieces = [b"%05d" % number for number in range(50_000)]
        with (tmp_path / "pieces").open("w+b") as file:
            file_io.write_all(file.fileno(), 0, pieces)
            assert file.read() == b"".join(pieces)
        assert looks[0] < 4 * len(pieces)

    @pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ENOSYS])
    def test_bytes_that_a_file_system_gave_up_before_the_sync_are_told(
        self, disk: LocalDisk, monkeypatch: pytest.MonkeyPatch, code: int
    ):
        def sync_file_range(*_: object) -> int:
            ctypes.set_errno(code)
            return -1

        monkeypatch.setattr(file_io, "LIBC", SimpleNamespace(sync_file_range=sync_file_range))
        is_told = pytest.raises(OSError, match=os.strerror(code))
        with nullcontext() if code == errno.ENOSYS else is_told:
            disk.stage("staged/a.ipc", [bytes(limits.WRITE_BYTES)], sync=True)
        assert disk.list("staged") == (["a.ipc"] if code == errno.ENOSYS else [])

    def test_a_file_whose_bytes_can_not_be_made_is_not_there(self, disk: LocalDisk):
        def pieces() -> Iterator[bytes]:
            yield bytes(limits.WRITE_BYTES)
            yield bytes(limits.WRITE_BYTES)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            disk.stage("staged/a.ipc", pieces(), sync=True)
        assert disk.list("staged") == []

    def test_large_files_are_written_when_no_thread_can_be_begun_any_more(self, disk: LocalDisk):
        with _start(_STAGE_LATE, disk.url) as process:
            assert process.wait() == 0
        assert disk.list("staged") == ["at exit", "by a thread"]

    def test_a_file_is_not_closed_while_it_is_written_however_often_that_is_interrupted(
        self, disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
    ):
        descriptors: list[bool] = []
        interrupted = threading.Event()

        def interrupt(*_: object) -> None:
            interrupted.set()
            raise KeyboardInterrupt

        def write_all(fd: int, _position: int, _buffers: Sequence[Bytes]) -> None:
            assert interrupted.wait(60)
            time.sleep(0.2)  # time to close it
            descriptors.append(os.path.exists(f"/proc/self/fd/{fd}"))

        def pieces() -> Iterator[bytes]:
            yield bytes(limits.WRITE_BYTES)
            main = threading.get_ident()  # it alone: a signal of another thread does not wake it
            threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
            raise ZeroDivisionError

        monkeypatch.setattr(new_file, "write_all", write_all)
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                disk.stage("staged/a.ipc", pieces(), sync=True)
        finally:
            signal.signal(signal.SIGINT, before)
        assert descriptors == [True]

    def test_folders_and_files_are_private(self, disk: LocalDisk):
        disk.publish("kmq.json", [b"x"], sync=True)
        disk.open_log("log/1.log", SIZE, create=True)
        disk.stage("staged/a.ipc", [b"x"], sync=False)
        for found in (disk.root, *disk.root.rglob("*")):
            assert found.stat().st_mode & 0o077 == 0, found

    def test_the_name_of_every_new_folder_comes_to_disk_with_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        synced: list[str] = []
        monkeypatch.setattr(file_io, "sync_folder", synced.append)
        disk = LocalDisk(tmp_path / "a" / "store")
        disk.stage("staged/a.ipc", [b"x"], sync=True)
        assert synced == [str(tmp_path), str(tmp_path / "a"), str(disk.root)]

    def test_files_that_are_staged_together_are_synced_when_all_are_written_and_each_folder_once(
        self, disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
    ):
        names = ["segments/t/0/a", "segments/t/1/b", "segments/t/1/c"]
        synced: list[str] = []

        def sync_data(fd: int) -> None:
            assert all(map(disk.exists, names))
            synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), disk.root))

        def sync_folder(folder: str) -> None:
            synced.append(os.path.relpath(folder, disk.root))

        monkeypatch.setattr(new_file, "sync_data", sync_data)
        for module in (new_file, file_io):
            monkeypatch.setattr(module, "sync_folder", sync_folder)
        disk.stage_together([(name, [b"x"]) for name in names])
        made = [".", "segments", "segments/t"]
        assert synced[-8:] == [*made, *names, "segments/t/0", "segments/t/1"]

    def test_of_files_that_are_staged_together_none_is_left_when_the_sync_of_one_fails(
        self, disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
    ):
        opened = open_files(disk.root)
        for failing in ("sync_data", "sync_folder"):
            synced: list[object] = []

            def sync(which: object, synced: list[object] = synced) -> None:
                synced.append(which)
                if len(synced) == 2:
                    raise OSError(errno.EIO, "the disk is gone")

            with monkeypatch.context() as patch:
                patch.setattr(new_file, failing, sync)
                with pytest.raises(OSError, match="the disk is gone"):
                    disk.stage_together([(f"segments/{n}/a", [b"x"]) for n in range(3)])
            assert len(synced) == 2
            assert [file.path for file in disk.walk("segments")] == []
        assert open_files(disk.root) == opened

    def test_files_that_are_removed_together_sync_their_folder_once(
        self, disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
    ):
        for name in ("staged/a", "staged/b", "segments/c"):
            disk.stage(name, [b"x"], sync=False)
        synced: list[str] = []
        monkeypatch.setattr(local, "sync_folder", synced.append)
        disk.remove("staged/a", "staged/missing", "staged/b", "segments/c")
        assert sorted(synced) == [str(disk.root / "segments"), str(disk.root / "staged")]

    def test_a_folder_whose_parent_is_a_file_cannot_be_made(self, tmp_path: Path):
        (tmp_path / "store").write_text("not a folder")
        with pytest.raises(NotADirectoryError):
            LocalDisk(tmp_path / "store").publish("kmq.json", [b"x"], sync=True)

    def test_no_temporary_file_is_left(self, disk: LocalDisk):
        disk.publish("kmq.json", [b"x"], sync=True)
        disk.publish("kmq.json", [b"y"], sync=True)
        disk.open_log("log/1.log", SIZE, create=True)
        disk.replace_log("log/1.log", SIZE, [b"x"])
        disk.stage("staged/a.ipc", [b"x"], sync=True)
        disk.stage_again("staged/a.ipc")
        names = sorted(path.name for path in disk.root.rglob("*") if path.is_file())
        assert names == ["1.log", "a.ipc", "kmq.json"]

    def test_a_log_file_that_was_cut_short_keeps_the_size_that_tells_so(self, disk: LocalDisk):
        disk.open_log("log/1.log", SIZE, create=True).write_at(0, [b"abc"], 3)
        os.truncate(disk.root / "log/1.log", 1_000)
        assert disk.open_log("log/1.log", SIZE, create=False).contents().size == 1_000

    def test_a_hint_page_that_was_cut_short_does_not_stop_a_reader(self, disk: LocalDisk):
        disk.open_words("log/hint", 8)
        os.truncate(disk.root / "log/hint", 5)
        assert LocalDisk(disk.root, read_only=True).open_words("log/hint", 8).load(0) == 0


def _eventually(holds: Callable[[], bool]) -> bool:
    for _ in range(6_000):
        if holds():
            return True
        time.sleep(0.01)
    return False
