"""The files of the commit log: finding the next frame, and writing one.

A journal knows frames and files, nothing of topics. Frame n stands in the log file with the
greatest first LSN that is not above n; a file ends where its successor begins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.cutting import cut
from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.entries import Entry, RecordsEntry, decode_entries
from kmq_storage.format.frame import (
    ALIGNMENT,
    MAGIC,
    FrameHeader,
    InvalidFrameError,
    decode_header,
    is_blank,
    part_of,
    read_directory,
)
from kmq_storage.format.identity import Identity
from kmq_storage.log.hint import Hint
from kmq_storage.objects.disk import Disk, LogFile
from kmq_storage.objects.files import Bytes

_SEARCH_STEP = 1024 * 1024
_UNSETTLED = -1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place between two frames: what was read last, and where the next one begins."""

    lsn: int = 0
    #: The last frame's chain; None when it is not known and can't be compared.
    chain: int | None = 0
    time: int = 0
    #: The first LSN of the log file.
    file: int = 1
    position: int = 0


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """A frame whose header, directory and trailer are proven; its batches may be not."""

    header: FrameHeader
    directory: bytes
    file: int
    position: int

    @property
    def end(self) -> Cursor:
        """The place after this frame."""
        return Cursor(
            self.header.lsn,
            self.header.chain,
            self.header.time,
            self.file,
            self.position + self.header.length,
        )

    def entries(self) -> list[Entry]:
        """What the commit changes."""
        return list(decode_entries(self.directory))

    def staged_files(self) -> set[str]:
        """The files outside the log that the commit refers to."""
        entries = (entry for entry in self.entries() if isinstance(entry, RecordsEntry))
        return {paths.staged_file(entry.staged) for entry in entries if entry.staged}


class CollectedError(Exception):
    """The log does not reach back to this place any more."""


class Journal:
    """The log files of one store, opened once per process and handle."""

    def __init__(self, disk: Disk, identity: Identity, hint: Hint) -> None:
        self._disk = disk
        self._seed = identity.seed
        #: The size of every log file.
        self.file_bytes = identity.log_file_bytes
        self._hint = hint
        self._open_files: dict[int, LogFile] = {}
        self._contents: dict[int, pa.Buffer] = {}
        self._first_lsns: list[int] = []
        #: What the page said of the files when they were listed; -1: to be listed each time.
        self._rolls: int | None = _UNSETTLED

    def next_frame(self, cursor: Cursor, *, whole: bool = False) -> StoredFrame | None:
        """The frame after the cursor, or None where the log ends.

        InvalidFrameError when something else stands there. With `whole` the record batches
        inside the frame are verified too.
        """
        here = self.locate(cursor)
        log = self._log(here.file)
        if log is None or is_blank(log, here.position):
            return None
        header = decode_header(log, here.position, self._seed)
        if header.lsn != cursor.lsn + 1 or cursor.chain not in (None, header.previous):
            raise InvalidFrameError("the frame does not follow its predecessor")
        frame = StoredFrame(
            header, read_directory(log, here.position, header), here.file, here.position
        )
        if whole:
            self.verify_batches(frame)
        return frame

    def has_bytes_at(self, cursor: Cursor) -> bool:
        """Whether something stands where the next frame will be written."""
        try:
            here = self.locate(cursor)
        except InvalidFrameError:
            return True
        log = self._log(here.file)
        return log is not None and not is_blank(log, here.position)

    def verify_batches(self, frame: StoredFrame) -> None:
        """Check the record batches of a frame; InvalidFrameError when one is not whole."""
        for entry in frame.entries():
            if isinstance(entry, RecordsEntry):
                batch = self._batch(frame, entry)
                if batch.size < entry.length or checksum(batch) != entry.checksum:
                    raise InvalidFrameError("record batch checksum does not match")

    def _batch(self, frame: StoredFrame, entry: RecordsEntry) -> pa.Buffer:
        if not entry.staged:
            return part_of(
                self._contents[frame.file], frame.position + entry.position, entry.length
            )
        try:
            contents = self._disk.map(paths.staged_file(entry.staged))
        except FileNotFoundError:
            raise InvalidFrameError("a staged file is missing") from None
        return part_of(contents, entry.position, entry.length)

    def locate(self, cursor: Cursor) -> Cursor:
        """The same place, in the file where the next frame really stands.

        CollectedError when the log begins behind it.
        """
        file = self._file_of(cursor.lsn + 1) or cursor.file
        if self._first_lsns and cursor.lsn + 1 < self._first_lsns[0]:
            raise CollectedError
        if file == cursor.file:
            return cursor
        position = 0
        # None to walk over but after a failed sync, when files were replaced under the cursor.
        for lsn in range(file, cursor.lsn + 1):
            log = self._log(file)
            header = None if log is None else decode_header(log, position, self._seed)
            if header is None or header.lsn != lsn:
                raise InvalidFrameError("the log files were replaced")
            position += header.length
        return Cursor(cursor.lsn, cursor.chain, cursor.time, file, position)

    def try_locate(self, cursor: Cursor) -> Cursor:
        """As `locate`, or the cursor itself where no frames lead to its place."""
        try:
            return self.locate(cursor)
        except InvalidFrameError:
            return cursor

    def _file_of(self, lsn: int) -> int | None:
        """The file that the frame with this LSN stands in, or will."""
        if self._hint.rolls != self._rolls:
            self.look_again()
        index = bisect_right(self._first_lsns, lsn) - 1
        return self._first_lsns[index] if index >= 0 else None

    @property
    def blind(self) -> bool:
        """Whether no hint page tells of new log files."""
        return self._hint.rolls is None

    def look_again(self) -> None:
        """Forget files that were replaced, and list those that are there now."""
        rolls = self._hint.rolls
        self._rolls = _UNSETTLED if rolls is not None and rolls % 2 else rolls
        names = self._disk.list(paths.LOG_FOLDER)
        found = sorted(lsn for lsn in map(paths.try_first_lsn, names) if lsn is not None)
        self._open_files.clear()
        self._contents.clear()
        self._first_lsns = found

    def _log(self, file: int) -> pa.Buffer | None:
        if file not in self._contents and not self._open(file):
            return None
        return self._contents[file]

    def _open(self, file: int) -> LogFile | None:
        if file not in self._open_files:
            try:
                opened = self._disk.open_log(paths.log_file(file), self.file_bytes, create=False)
            except FileNotFoundError:
                return None
            self._open_files[file] = opened
            self._contents[file] = opened.contents()
        return self._open_files[file]

    def append(self, cursor: Cursor, buffers: list[Bytes], length: int) -> Cursor:
        """Write a frame at the cursor, in a new file when it doesn't fit; where it was written.

        Only under the append lock.
        """
        if length > self.file_bytes:
            raise InvalidRequestError(
                f"a commit of {length} bytes doesn't fit into a log file of {self.file_bytes}; "
                "send less at once",
                length=length,
            )
        here = self.locate(cursor)
        if self._rolls == _UNSETTLED:  # who changed the files died; they are as they are now
            self._hint.count_roll(cursor.lsn)
        log = self._open(here.file)
        if log is None or here.position + length > self._contents[here.file].size:
            here = Cursor(cursor.lsn, cursor.chain, cursor.time, cursor.lsn + 1, 0)
            log = self._roll_to(here.file)
        elif here.position == 0:
            self._hint.count_roll(here.file)  # who made the file may have died before telling
        if cursor.lsn == 0:
            self.note_begun()
        log.write_at(here.position, buffers, length)
        return here

    def note_begun(self) -> None:
        """Have it on disk, and outside of the log's folder, that there are log files."""
        self._disk.sync_names(paths.LOG_FOLDER)  # whoever made them may have died before
        self._disk.publish(paths.BEGUN, (), sync=True)

    def _roll_to(self, file: int) -> LogFile:
        with self._hint.rolling(file):
            name = paths.log_file(file)
            made = self._disk.open_log(name, self.file_bytes, create=True)
            if made.contents().size < self.file_bytes:  # somebody cut it; it has no frame
                self._disk.replace_log(name, self.file_bytes, ())
        self.look_again()
        opened = self._open(file)
        assert opened is not None, "the log file was just created"
        return opened

    def cut(self, cursor: Cursor) -> None:
        """Overwrite a torn tail with zeros, so that the log ends at the cursor."""
        here = self.locate(cursor)
        log = self._open(here.file)
        if log is not None:
            log.clear_from(here.position)
        later = [first for first in self._first_lsns if first > max(here.file, cursor.lsn + 1)]
        if later:
            self._remove(later, cursor.lsn)
        # Also what a process removed that died before its removal was on disk.
        self._disk.sync_names(paths.LOG_FOLDER)

    def drop_before(self, lsn: int) -> list[str]:
        """Remove the files that are over before this LSN, never the last; their names.

        Only under the append lock. Who reads there yet goes on from a checkpoint.
        """
        self.look_again()
        dropped = [first for first, following in pairwise(self._first_lsns) if following <= lsn]
        if dropped:
            self._remove(dropped, lsn)
            self.look_again()
        return [paths.log_file(first) for first in dropped]

    def _remove(self, files: list[int], lsn: int) -> None:
        with self._hint.rolling(lsn):
            for first in files:
                self._disk.remove(paths.log_file(first))

    def sync(self, first: int, last: int) -> None:
        """Bring the frames with these LSNs to disk (both included)."""
        begin = self._file_of(first) or 0
        for file in self._first_lsns:
            if begin <= file <= last and (log := self._open(file)) is not None:
                log.sync()

    def sync_staged(self, files: set[str]) -> None:
        """Bring these staged files to disk."""
        if files:
            self._disk.sync_staged(files)

    def stage_again(self, files: set[str]) -> None:
        """Write these staged files into fresh blocks: their sync failed."""
        for file in files:
            self._disk.stage_again(file)

    def first_lsn(self) -> int:
        """The first commit that is still in the log; 1 while there is none."""
        self._file_of(1)
        return self._first_lsns[0] if self._first_lsns else 1

    def start_of(self, lsn: int) -> Cursor:
        """A cursor from which the frame with this LSN is reached by going on."""
        file = self._file_of(lsn) or 1
        return Cursor(file - 1, None if file > 1 else 0, 0, file, 0)

    def raw(self, frame: StoredFrame) -> pa.Buffer:
        """All bytes of a frame."""
        return self._contents[frame.file].slice(frame.position, frame.header.length)

    def log_file(self, file: int) -> LogFile | None:
        """A log file; None when it is not there."""
        return self._open(file)

    def sizes(self) -> dict[int, int]:
        """The sizes in bytes of the log files that there are now, by first LSN."""
        self.look_again()
        logs = ((file, self._log(file)) for file in self._first_lsns)
        return {file: log.size for file, log in logs if log is not None}

    def resized(self) -> dict[int, int]:
        """The sizes of the log files that don't have the size they were made with."""
        return {file: size for file, size in self.sizes().items() if size != self.file_bytes}

    def replace_from(self, cursor: Cursor, frames: list[bytes]) -> None:
        """Write whole frames into fresh files in place of all files after the cursor, synced.

        For files whose sync failed: they are never synced again. Only under both locks. Fresh
        files appear from the last to the first and old ones go from the first to the last, so
        that whoever takes over after a crash in between finds every frame.
        """
        lsn, fresh = cursor.lsn + 1, dict[int, list[bytes]]()
        for run in [*cut(frames, len, self.file_bytes)] or [[]]:
            fresh[lsn] = run
            lsn += len(run)
        old = [first for first in self._first_lsns if first > cursor.lsn and first not in fresh]
        with self._hint.rolling(cursor.lsn):
            for first in sorted(fresh, reverse=True):
                self._disk.replace_log(paths.log_file(first), self.file_bytes, fresh[first])
            for first in old:
                self._disk.remove(paths.log_file(first))
        self.look_again()

    def renew(self, first: int, end: Cursor) -> None:
        """Have the files with the frames from an LSN on anew, with the same bytes, synced.

        Whoever knows where a frame stands finds it there. Only under the append lock.
        """
        here, begin = self.locate(end), self._file_of(first) or 0
        with self._hint.rolling(first):
            for file in [each for each in self._first_lsns if begin <= each <= here.file]:
                log = self._log(file)
                length = here.position if file == here.file else self.file_bytes
                if log is not None:
                    bytes_of = log.slice(0, min(length, log.size)).to_pybytes()
                    self._disk.replace_log(paths.log_file(file), self.file_bytes, [bytes_of])
        self.look_again()

    def try_resync(self, cursor: Cursor) -> tuple[Cursor, StoredFrame] | None:
        """Beyond a damaged frame: the next place where a later frame proves itself, or None."""
        here = self.try_locate(cursor)
        for file in [here.file, *(f for f in self._first_lsns if f > here.file)]:
            start = here.position + ALIGNMENT if file == here.file else 0
            found = self._search(file, start, cursor.lsn + 2)
            if found is not None:
                before = Cursor(
                    found.header.lsn - 1, found.header.previous, 0, file, found.position
                )
                return before, found
        return None

    def _search(self, file: int, start: int, lsn: int) -> StoredFrame | None:
        opened, log = self._open(file), self._log(file)
        if opened is None or log is None:
            return None
        for position in _magic_positions(opened, start):
            try:
                header = decode_header(log, position, self._seed)
                if header.lsn >= lsn and self._file_of(header.lsn) == file:
                    directory = read_directory(log, position, header)
                    return StoredFrame(header, directory, file, position)
            except InvalidFrameError:
                continue
        return None


def _magic_positions(log: LogFile, start: int) -> Iterator[int]:
    """Every aligned position that looks like the begin of a frame."""
    for base in range(start - start % _SEARCH_STEP, log.contents().size, _SEARCH_STEP):
        window = log.read(base, _SEARCH_STEP)
        found = window.find(MAGIC, max(start - base, 0))
        while found >= 0:
            if found % ALIGNMENT == 0:
                yield base + found
            found = window.find(MAGIC, found + 1)
