"""The log files of a store: which there are, and what stands in them as it is mapped.

A file's name is the LSN of its first frame; it ends where its successor begins. Which there are is
listed anew when the hint page says that they changed, each time while somebody changes them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.log.hint import Hint
from kmq_storage.objects.disk import Disk, LogFile
from kmq_storage.objects.mapping import is_readable

_UNSETTLED = -1
#: Bytes of a log file that are brought into memory at once.
_LOOKED_AT = 65_536


class LogFolder:
    """The files as one journal has them open."""

    def __init__(self, disk: Disk, file_bytes: int, hint: Hint) -> None:
        self._disk = disk
        #: The size of every log file.
        self.file_bytes = file_bytes
        self._hint = hint
        self._opened: dict[int, LogFile] = {}
        self._contents: dict[int, pa.Buffer] = {}
        #: The bytes of each that were readable the last time that somebody looked elsewhere.
        self._readable: dict[int, tuple[int, int]] = {}
        #: The files by their first LSNs, in order, as they were listed.
        self.first_lsns: list[int] = []
        #: What the page said of the files when they were listed; -1: to be listed each time.
        self._rolls: int | None = _UNSETTLED

    @property
    def blind(self) -> bool:
        """Whether no hint page tells of new log files."""
        return self._hint.rolls is None

    @property
    def is_settled(self) -> bool:
        """Whether nobody was changing the files when they were listed."""
        return self._rolls != _UNSETTLED

    def look_again(self) -> None:
        """Forget files that were replaced, and list those that are there now."""
        rolls = self._hint.rolls
        names = self._disk.list(paths.LOG_FOLDER)
        found = sorted(lsn for lsn in map(paths.try_first_lsn, names) if lsn is not None)
        self._opened.clear()
        self._contents.clear()
        self._readable.clear()
        self.first_lsns = found
        # Last: who is interrupted before looks again, and writes into no file that was replaced.
        self._rolls = _UNSETTLED if rolls is not None and rolls % 2 else rolls

    def file_of(self, lsn: int) -> int | None:
        """The file that the frame with this LSN stands in, or will."""
        if self._hint.rolls != self._rolls:
            self.look_again()
        index = bisect_right(self.first_lsns, lsn) - 1
        return self.first_lsns[index] if index >= 0 else None

    def first_lsn(self) -> int:
        """The first commit that is still in the log; 1 while there is none."""
        self.file_of(1)
        return self.first_lsns[0] if self.first_lsns else 1

    def open(self, file: int) -> LogFile | None:
        """A log file; None when it is not there."""
        if file not in self._opened:
            try:
                opened = self._disk.open_log(paths.log_file(file), self.file_bytes, create=False)
            except FileNotFoundError:
                return None
            self._contents[file] = opened.contents()  # first, should this be interrupted
            self._opened[file] = opened
        return self._opened[file]

    def contents(self, file: int) -> pa.Buffer | None:
        """All of a log file; None when it is not there."""
        if file not in self._contents and not self.open(file):
            return None
        return self._contents[file]

    def is_known_readable(self, file: int, log: pa.Buffer, start: int, length: int) -> bool:
        """Whether these bytes were readable the last time that somebody looked."""
        known = self._readable.get(file)
        return (
            known is not None
            and known[0] <= start
            and start + length <= known[1]
            and self._has(file, log)
        )

    def _has(self, file: int, log: pa.Buffer) -> bool:
        return self._contents.get(file) is log

    def is_readable(self, file: int, log: pa.Buffer, start: int, length: int) -> bool:
        """Whether the disk can read these bytes of a log file's contents, as far as it has them."""
        if self.is_known_readable(file, log, start, length):
            return True
        end = min(start + length, log.size)
        if start >= end:
            return True
        if not self._has(file, log):  # the files were listed anew since it was opened
            return is_readable(log.slice(start, end - start))
        first = start - start % _LOOKED_AT
        behind = min(end - end % -_LOOKED_AT, log.size)
        if is_readable(log.slice(first, behind - first)):
            self._readable[file] = first, behind
            return True
        return is_readable(log.slice(start, end - start))  # nobody may have written behind

    def sizes(self) -> dict[int, int]:
        """The sizes in bytes of the log files that there are now, by first LSN."""
        self.look_again()
        logs = ((file, self.contents(file)) for file in self.first_lsns)
        return {file: log.size for file, log in logs if log is not None}

    def resized(self) -> dict[int, int]:
        """The sizes of the log files that don't have the size they were made with."""
        return {file: size for file, size in self.sizes().items() if size != self.file_bytes}

    def add(self, file: int) -> LogFile:
        """A new file, for the frame with this LSN."""
        with self._hint.rolling(file):
            name = paths.log_file(file)
            made = self._disk.open_log(name, self.file_bytes, create=True)
            if made.contents().size < self.file_bytes:  # somebody cut it; it has no frame
                self._disk.replace_log(name, self.file_bytes, ())
        self.look_again()
        opened = self.open(file)
        assert opened is not None, "the log file was just created"
        return opened

    def replace(
        self, lsn: int, fresh: Iterable[tuple[int, list[bytes]]], old: Iterable[int] = ()
    ) -> None:
        """Have files begin with these bytes, synced, then others gone, in this order.

        The page tells of it as of this LSN.
        """
        with self._hint.rolling(lsn):
            for first, frames in fresh:
                self._disk.replace_log(paths.log_file(first), self.file_bytes, frames)
            for first in old:
                self._disk.remove(paths.log_file(first))
        self.look_again()
