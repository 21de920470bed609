"""The log files of a store: which exist, and their mapped contents.

A log file is named after the LSN of its first frame and ends where its successor begins. The
folder is listed again when the hint page says that the files changed, and at every look while a
process is changing them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.log.files.hint import Hint
from kmq_storage.objects.disk import Disk, LogFile
from kmq_storage.objects.mapping import is_readable

_UNSETTLED = -1
#: Readability is checked in units of this many bytes, which are brought into memory at once.
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
        #: Per file, the range of bytes that was found readable by the last check.
        self._readable: dict[int, tuple[int, int]] = {}
        #: The first LSNs of the files at the last listing, in order.
        self.first_lsns: list[int] = []
        #: `Hint.rolls` at the last listing; -1 when the files must be listed at every look.
        self._rolls: int | None = _UNSETTLED

    @property
    def blind(self) -> bool:
        """Whether no hint page tells of new log files."""
        return self._hint.rolls is None

    @property
    def is_settled(self) -> bool:
        """Whether no process was changing the files when they were listed."""
        return self._rolls != _UNSETTLED

    def look_again(self) -> None:
        """List the files again, and reopen them when next used: they may have been replaced."""
        rolls = self._hint.rolls
        names = self._disk.list(paths.LOG_FOLDER)
        found = sorted(lsn for lsn in map(paths.try_first_lsn, names) if lsn is not None)
        self._opened.clear()
        self._contents.clear()
        self._readable.clear()
        self.first_lsns = found
        # Set last: a thread interrupted before this lists again, and so never writes into a file
        # that was replaced.
        self._rolls = _UNSETTLED if rolls is not None and rolls % 2 else rolls

    def file_of(self, lsn: int) -> int | None:
        """The file that has, or will have, the frame with this LSN."""
        if self._hint.rolls != self._rolls:
            self.look_again()
        index = bisect_right(self.first_lsns, lsn) - 1
        return self.first_lsns[index] if index >= 0 else None

    def first_lsn(self) -> int:
        """The first commit that is still in the log; 1 while there is none."""
        self.file_of(1)
        return self.first_lsns[0] if self.first_lsns else 1

    def open(self, file: int) -> LogFile | None:
        """A log file; None when it does not exist."""
        if file not in self._opened:
            try:
                opened = self._disk.open_log(paths.log_file(file), self.file_bytes, create=False)
            except FileNotFoundError:
                return None
            self._contents[file] = opened.contents()  # first, as an interruption may follow
            self._opened[file] = opened
        return self._opened[file]

    def contents(self, file: int) -> pa.Buffer | None:
        """The mapped contents of a log file; None when it does not exist."""
        if file not in self._contents and not self.open(file):
            return None
        return self._contents[file]

    def is_known_readable(self, file: int, log: pa.Buffer, start: int, length: int) -> bool:
        """Whether the last check found these bytes readable."""
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
        """Whether the disk can read these bytes of a log file, as far as the file goes."""
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
        return is_readable(log.slice(start, end - start))  # only the bytes behind may be bad

    def sizes(self) -> dict[int, int]:
        """The current log files by first LSN, with their sizes in bytes."""
        self.look_again()
        logs = ((file, self.contents(file)) for file in self.first_lsns)
        return {file: log.size for file, log in logs if log is not None}

    def resized(self) -> dict[int, int]:
        """The log files whose size was changed from outside, with their sizes."""
        return {file: size for file, size in self.sizes().items() if size != self.file_bytes}

    def add(self, file: int) -> LogFile:
        """Create the log file that begins with the frame of this LSN."""
        with self._hint.rolling(file):
            name = paths.log_file(file)
            made = self._disk.open_log(name, self.file_bytes, create=True)
            if made.contents().size < self.file_bytes:  # it was cut from outside; it has no frame
                self._disk.replace_log(name, self.file_bytes, ())
        self.look_again()
        opened = self.open(file)
        assert opened is not None, "the log file was just created"
        return opened

    def replace(
        self, lsn: int, fresh: Iterable[tuple[int, list[bytes]]], old: Iterable[int] = ()
    ) -> None:
        """Create `fresh` files with these first bytes, synced, then remove `old` ones, in order.

        The hint page notes the change at LSN `lsn`.
        """
        with self._hint.rolling(lsn):
            for first, frames in fresh:
                self._disk.replace_log(paths.log_file(first), self.file_bytes, frames)
            for first in old:
                self._disk.remove(paths.log_file(first))
        self.look_again()
