"""The contract of `Disk`, as tests that every backend inherits.

Finds a backend on which the commit log would lose or tear what it believes to be whole: two
winners of one name, a file seen in part, a lock that two hold, a wake-up that never comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from kmq_storage.objects.disk import Disk, SharedWords
from tests.contract.files_contract import FilesContract

SIZE = 8_192


class DiskContract(FilesContract):
    """Subclasses give the fixture `disk`: an empty place for one store."""

    @pytest.fixture
    def disk(self) -> Disk:
        raise NotImplementedError

    def test_the_name_of_a_staged_file_is_taken_and_stays_so(self, disk: Disk):
        disk.stage("staged/a.ipc", [b"abc", memoryview(b"def")], sync=False)
        disk.sync_staged(["staged/a.ipc"])
        disk.stage_again("staged/a.ipc")
        with pytest.raises(FileExistsError):
            disk.stage("staged/a.ipc", [b"x"], sync=True)
        assert disk.read("staged/a.ipc") == b"abcdef"

    def test_a_linked_file_has_two_names_of_which_each_goes_by_itself(self, disk: Disk):
        disk.stage("segments/a/b.arrow", [b"abc"], sync=True)
        disk.link("segments/c/d.arrow", disk, "segments/a/b.arrow")
        disk.link("segments/c/d.arrow", disk, "segments/a/b.arrow")  # is there: nothing happens
        disk.sync_names("segments/c")
        disk.remove("segments/a/b.arrow")
        assert disk.read("segments/c/d.arrow") == b"abc"
        with pytest.raises(FileNotFoundError):
            disk.link("segments/c/e.arrow", disk, "segments/a/b.arrow")

    def test_a_log_file_is_listed_and_removed_as_any_other(self, disk: Disk):
        disk.open_log("log/00000000000000000001.log", SIZE, create=True)
        assert disk.list("log") == ["00000000000000000001.log"]
        disk.remove("log/00000000000000000001.log")
        assert not disk.exists("log/00000000000000000001.log")

    def test_a_log_file_is_created_once_full_of_zeros(self, disk: Disk):
        with pytest.raises(FileNotFoundError):
            disk.open_log("log/1.log", SIZE, create=False)
        log = disk.open_log("log/1.log", SIZE, create=True)
        assert log.contents().to_pybytes() == bytes(SIZE)
        log.write_at(0, [b"kept"], 4)
        again = disk.open_log("log/1.log", SIZE, create=True)
        assert again.contents().to_pybytes()[:6] == b"kept\0\0"

    def test_writes_show_up_in_contents_that_were_mapped_before(self, disk: Disk):
        writer = disk.open_log("log/1.log", SIZE, create=True)
        contents = disk.open_log("log/1.log", SIZE, create=False).contents()
        mapped = disk.map("log/1.log")
        writer.write_at(100, [b"ab", bytearray(b"cd"), memoryview(b"ef")], 6)
        writer.sync()
        for view in (contents, mapped, writer.contents()):
            assert view.slice(99, 8).to_pybytes() == b"\0abcdef\0"
            assert view.size == SIZE

    def test_more_buffers_than_the_kernel_takes_at_once_are_written(self, disk: Disk):
        log = disk.open_log("log/1.log", SIZE, create=True)
        log.write_at(0, [bytes([n % 256]) for n in range(3_000)], 3_000)
        expected = bytes(n % 256 for n in range(3_000))
        assert log.contents().slice(0, 3_000).to_pybytes() == expected

    def test_clearing_leaves_zeros_from_the_position_on(self, disk: Disk):
        log = disk.open_log("log/1.log", SIZE, create=True)
        log.write_at(0, [b"x" * SIZE], SIZE)
        log.clear_from(5_000)
        assert log.contents().to_pybytes() == b"x" * 5_000 + bytes(SIZE - 5_000)

    def test_a_replaced_log_file_is_new_and_old_handles_keep_the_old_bytes(self, disk: Disk):
        old = disk.open_log("log/1.log", SIZE, create=True)
        old.write_at(0, [b"old"], 3)
        contents = old.contents()
        disk.replace_log("log/1.log", SIZE, [b"ne", b"w"])
        fresh = disk.open_log("log/1.log", SIZE, create=False)
        assert fresh.contents().to_pybytes() == b"new" + bytes(SIZE - 3)
        with suppress(OSError):  # refused, or written where nobody looks any more
            old.write_at(4_000, [b"lost"], 4)
        assert contents.slice(0, 3).to_pybytes() == b"old"
        assert fresh.contents().slice(4_000, 4).to_pybytes() == bytes(4)

    def test_words_are_shared_and_hold_64_bits(self, disk: Disk):
        words, others = disk.open_words("log/hint", 8), disk.open_words("log/hint", 8)
        assert [words.load(n) for n in range(8)] == [0] * 8
        words.store(3, 2**64 - 1)
        assert others.load(3) == 2**64 - 1
        assert others.load(2) == others.load(4) == 0

    def test_words_are_loaded_together_as_they_are_one_by_one(self, disk: Disk):
        words = disk.open_words("log/hint", 8)
        for index in range(8):
            words.store(index, 2**63 + index)
        assert words.loaded(2, 5) == [words.load(index) for index in range(2, 7)]

    def test_waiting_ends_at_once_when_the_word_differs(self, disk: Disk):
        words = disk.open_words("log/hint", 8)
        words.store(1, 7)
        assert _seconds(lambda: words.wait(1, 6, 60.0)) < 30.0

    def test_waiting_ends_with_its_timeout(self, disk: Disk):
        words = disk.open_words("log/hint", 8)
        begin = time.monotonic()
        while time.monotonic() - begin < 0.05:  # a disk may look up earlier
            words.wait(1, 0, 0.05)
        assert time.monotonic() - begin < 30.0

    def test_a_waiting_thread_is_woken(self, disk: Disk):
        words = disk.open_words("log/hint", 8)
        woken = _start_waiting(disk.open_words("log/hint", 8))
        time.sleep(0.05)
        words.store(1, 5)
        words.wake(1)
        woken.join(30.0)
        assert not woken.is_alive()

    def test_a_wake_up_without_a_change_ends_a_wait(self, disk: Disk):
        words, ended = disk.open_words("log/hint", 8), threading.Event()

        def wait() -> None:
            words.wait(1, 0, 120.0)
            ended.set()

        threading.Thread(target=wait, daemon=True).start()
        for _ in range(5_000):
            words.wake(1)
            if ended.wait(0.01):
                break
        assert ended.is_set()

    @pytest.mark.parametrize("own_handles", [False, True])
    def test_a_lock_keeps_threads_apart(self, disk: Disk, own_handles: bool):
        shared, counter = disk.open_lock("locks/a.lock"), [0]

        def count() -> None:
            lock = disk.open_lock("locks/a.lock") if own_handles else shared
            for _ in range(200):
                while not lock.try_acquire():
                    time.sleep(0)
                before = counter[0]
                time.sleep(0)
                counter[0] = before + 1
                lock.release()

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counter == [800]


def _start_waiting(words: SharedWords) -> threading.Thread:
    def wait() -> None:
        while words.load(1) == 0:
            words.wait(1, 0, 60.0)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def _seconds(call: Callable[[], None]) -> float:
    begin = time.monotonic()
    call()
    return time.monotonic() - begin
