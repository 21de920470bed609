"""A local disk that fails on demand, and says what was asked of it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from kmq_storage.objects.disk import LogFile
from kmq_storage.objects.files import Bytes
from kmq_storage.objects.local import LocalDisk


class FailingDisk(LocalDisk):
    """Calls in `failing` raise the OSError of that number; `calls` has the names of all."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.failing: dict[str, int] = {}
        self.calls: list[str] = []
        #: Called when a sync fails, before the error is raised: what the kernel may do then.
        self.after_failed_sync: Callable[[], None] = lambda: None

    def check(self, call: str) -> None:
        """Note the call, and fail if it should."""
        self.calls.append(call)
        if (number := self.failing.get(call)) is not None:
            if call == "sync":
                self.after_failed_sync()
            raise OSError(number, errno.errorcode[number])

    def open_log(self, path: str, size: int, *, create: bool) -> LogFile:  # type: ignore[override]
        if create:
            self.check("create")
        return _FailingLogFile(self, super().open_log(path, size, create=create))

    def replace_log(self, path: str, size: int, buffers: Sequence[Bytes]) -> None:
        self.check("replace")
        super().replace_log(path, size, buffers)

    def stage(self, path: str, buffers: Iterable[Bytes], *, sync: bool) -> None:
        self.check("stage synced" if sync else "stage")
        super().stage(path, buffers, sync=sync)

    def stage_together(self, files: Sequence[tuple[str, Iterable[Bytes]]]) -> None:
        self.check("stage synced")
        super().stage_together(files)

    def sync_staged(self, paths: Iterable[str]) -> None:
        self.check("sync staged")
        super().sync_staged(paths)


class _FailingLogFile:
    def __init__(self, disk: FailingDisk, file: LogFile) -> None:
        self._disk = disk
        self._file = file

    def write_at(self, position: int, buffers: Sequence[Bytes], length: int) -> None:
        if "write" in self._disk.failing:  # a full disk takes a part first
            whole = b"".join(bytes(memoryview(buffer)) for buffer in buffers)
            self._file.write_at(position, [whole[: length // 2]], length // 2)
        self._disk.check("write")
        self._file.write_at(position, buffers, length)

    def clear_from(self, position: int) -> None:
        self._file.clear_from(position)

    def sync(self) -> None:
        self._disk.check("sync")
        self._file.sync()

    def read(self, position: int, length: int) -> bytes:
        return self._file.read(position, length)

    def has_data_from(self, position: int) -> bool:
        return self._file.has_data_from(position)

    def contents(self) -> pa.Buffer:
        return self._file.contents()


def drop_pages(disk: FailingDisk, position: int) -> None:
    """What the kernel may do to pages of the first log file that it could not write."""
    with open(disk.root / "log" / f"{1:020d}.log", "r+b") as file:
        file.seek(position)
        file.write(bytes(4096))
