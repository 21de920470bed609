"""The contract of `Files`: what every place of a store keeps, a disk or a bucket.

Finds a place where the commit log would lose or tear what it believes to be whole: two winners
of one name, a file seen in part, a lock that two hold.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from kmq_storage import limits
from kmq_storage.objects.files import Files


class FilesContract:
    """Subclasses give the fixture `files`: an empty place for one store."""

    @pytest.fixture
    def files(self) -> Files:
        raise NotImplementedError

    def test_a_missing_file_does_not_exist_and_cannot_be_read(self, files: Files):
        assert not files.exists("kmq.json")
        with pytest.raises(FileNotFoundError):
            files.read("kmq.json")
        with pytest.raises(FileNotFoundError):
            files.map("staged/a.ipc")

    def test_a_published_file_is_read_back(self, files: Files):
        assert files.publish("kmq.json", [b"one, ", bytearray(b"two")], sync=True)
        assert files.exists("kmq.json")
        assert files.read("kmq.json") == b"one, two"
        assert files.map("kmq.json").to_pybytes() == b"one, two"

    def test_publishing_a_taken_name_changes_nothing(self, files: Files):
        assert files.publish("kmq.json", [b"first"], sync=False)
        assert not files.publish("kmq.json", [b"second"], sync=False)
        assert files.read("kmq.json") == b"first"

    def test_a_race_for_a_name_has_one_winner_and_shows_no_part_of_a_file(self, files: Files):
        contents = [bytes([n]) * 200_000 for n in range(8)]
        for number in range(10):
            path, seen = f"names/{number}", []
            barrier = threading.Barrier(len(contents) + 1)

            def publish(
                content: bytes, path: str = path, barrier: threading.Barrier = barrier
            ) -> bool:
                barrier.wait()
                return files.publish(path, [content[:1], content[1:]], sync=False)

            with ThreadPoolExecutor(len(contents)) as pool:
                futures = [pool.submit(publish, content) for content in contents]
                barrier.wait()
                while not all(future.done() for future in futures):
                    seen += [files.read(path)] if files.exists(path) else []
            won = [n for n, future in enumerate(futures) if future.result()]
            assert len(won) == 1
            assert {*seen, files.read(path)} == {contents[won[0]]}

    def test_a_staged_file_is_read_back(self, files: Files):
        files.stage("staged/a.ipc", [b"abc", memoryview(b"def")], sync=False)
        assert files.map("staged/a.ipc").to_pybytes() == b"abcdef"
        assert files.map("staged/a.ipc").slice(2, 3).to_pybytes() == b"cde"
        assert files.map("staged/a.ipc").size == 6
        assert files.read("staged/a.ipc") == b"abcdef"

    def test_files_that_are_staged_together_are_all_there_or_after_an_error_none(
        self, files: Files
    ):
        def broken() -> Iterator[bytes]:
            yield b"x"
            raise ZeroDivisionError

        new = [(f"segments/{n % 3}/{n}.arrow", [b"%d" % n, b"!"]) for n in range(7)]
        with pytest.raises(ZeroDivisionError):
            files.stage_together([*new, ("segments/3/7.arrow", broken())])
        files.stage_together([])
        assert [file.path for file in files.walk("segments")] == []
        files.stage_together(new)
        assert {path: files.read(path) for path, _ in new} == {
            path: b"".join(parts) for path, parts in new
        }

    def test_any_part_of_a_large_file_is_read(self, files: Files):
        body = bytes(n % 251 for n in range(3_000_000))
        files.stage("staged/a.ipc", [body], sync=True)
        contents = files.map("staged/a.ipc")
        files.prefetch([("staged/a.ipc", 2_000_000, 999_999)])
        for start, length in ((0, 64), (1_048_500, 200), (2_000_000, 999_999), (2_999_990, 10)):
            assert contents.slice(start, length).to_pybytes() == body[start : start + length]
        assert contents.size == len(body)

    def test_pieces_of_any_size_are_written_one_behind_the_other(self, files: Files):
        whole = os.urandom(2 * limits.WRITE_BYTES + 4_321)
        ends = [1, 1, limits.WRITE_BYTES + 7, 2 * limits.WRITE_BYTES, len(whole)]
        pieces = (pa.py_buffer(whole[a:b]) for a, b in zip([0, *ends], ends, strict=False))
        files.stage("staged/a.ipc", pieces, sync=False)
        assert files.map("staged/a.ipc").to_pybytes() == whole

    def test_a_large_file_is_made_of_what_is_read_meanwhile(self, files: Files):
        part = bytes(1024) * 1024
        files.stage("staged/a.ipc", [part], sync=False)
        files.stage("staged/b.ipc", (files.read("staged/a.ipc") for _ in range(20)), sync=False)
        assert files.read("staged/b.ipc") == part * 20

    def test_an_empty_file_is_mapped_as_nothing(self, files: Files):
        files.stage("staged/a.ipc", [], sync=True)
        assert files.map("staged/a.ipc").size == 0

    def test_a_folder_lists_its_own_bare_names_in_order(self, files: Files):
        assert files.list("staged") == []
        for name in ("b", "a", "c"):
            files.stage(f"staged/{name}", [b"x"], sync=False)
        assert files.list("staged") == ["a", "b", "c"]

    def test_the_store_itself_lists_what_is_in_no_folder_and_walks_through_all(self, files: Files):
        for path in ("kmq.json", "staged/a", "pages/b"):
            files.publish(path, [b"x"], sync=False)
        assert "kmq.json" in files.list("")
        assert not {"a", "b"} & set(files.list(""))
        assert [each.path for each in files.walk("")] == ["kmq.json", "pages/b", "staged/a"]

    def test_a_removed_file_is_gone_and_may_be_removed_again(self, files: Files):
        files.stage("staged/a", [b"x"], sync=False)
        for path in ("staged/a", "staged/a"):
            files.remove(path)
            assert not files.exists(path)

    def test_many_files_are_removed_at_once_though_some_are_missing(self, files: Files):
        made = [f"staged/{n}" for n in range(1_100)]
        for path in (*made[:1_000:50], *made[1_000:]):
            files.stage(path, [b"x"], sync=False)
        files.stage("segments/a", [b"x"], sync=False)
        files.remove(*made, "segments/a", "segments/b")
        assert files.list("staged") == files.list("segments") == []

    def test_a_lock_has_one_holder(self, files: Files):
        lock, same_name = files.open_lock("locks/a.lock"), files.open_lock("locks/a.lock")
        other = files.open_lock("locks/b.lock")
        assert lock.try_acquire()
        assert not lock.try_acquire()
        assert not same_name.try_acquire()
        assert other.try_acquire()
        assert lock.holder()
        lock.release()
        assert same_name.try_acquire()
        same_name.release()

    def test_a_lock_tells_whether_it_is_held_and_its_beats(self, files: Files):
        """Who looks takes nothing, and a lock that nobody ever took is free."""
        lock, watched = files.open_lock("locks/a.lock"), files.open_lock("locks/a.lock")
        assert watched.last_beat() is None
        assert lock.try_acquire()
        lock.beat()
        first = watched.last_beat()
        assert first is not None
        assert watched.last_beat() == first
        assert watched.is_held()
        lock.release()
        assert watched.last_beat() is None
        lock.discard()
        assert watched.last_beat() is None
        watched.discard()
