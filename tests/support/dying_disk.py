"""A disk in memory whose user dies at the n-th change, and one that can be opened after that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

from kmq_storage.objects.files import Bytes, Files
from kmq_storage.objects.memory import MemoryDisk, MemoryLogFile


class Died(BaseException):
    """The process is gone: nobody below catches this."""


def die(*_: object, **__: object) -> NoReturn:
    """End the process here."""
    raise Died


class _DyingLogFile:
    """A log file to which each commit is a change of the disk."""

    def __init__(self, file: MemoryLogFile, change: Callable[[], None]) -> None:
        self._file, self._change = file, change

    def write_at(self, position: int, buffers: Sequence[Bytes], length: int) -> None:
        """Write all of it, or die before."""
        self._change()
        self._file.write_at(position, buffers, length)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class DyingDisk(MemoryDisk):
    """Raises `Died` before the change after the next `changes_left` ones; None lives on."""

    def __init__(self, url: str, *, commits: bool = False) -> None:
        super().__init__(url)
        #: Whether what is written to log files is a change, too.
        self._commits = commits
        self.changes_left: int | None = None
        self.changes = 0
        #: What the clock of the store shows beyond the real time (microseconds).
        self.ahead = 0

    def _change(self) -> None:
        self.changes += 1
        if self.changes_left is not None:
            if self.changes_left == 0:
                raise Died
            self.changes_left -= 1

    def now(self) -> int:
        return super().now() + self.ahead

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        self._change()
        return super().publish(path, buffers, sync=sync)

    def remove(self, *paths: str) -> None:
        for path in paths:
            self._change()
            super().remove(path)

    def link(self, path: str, source: Files, source_path: str) -> None:
        self._change()
        super().link(path, source, source_path)

    def open_log(self, path: str, size: int, *, create: bool) -> MemoryLogFile:
        if create and path not in self.logs:
            self._change()
        file = super().open_log(path, size, create=create)
        return cast("MemoryLogFile", _DyingLogFile(file, self._change)) if self._commits else file

    def revive(self) -> None:
        """Another process opens the store: the locks of the dead one are free."""
        self.changes_left = None
        self._locks.clear()
