"""The files of the commit log: reading the next frame, and writing one.

A journal knows frames and files, but nothing of topics. Frame n is in the log file with the
greatest first LSN that is not above n. `folder` knows which files exist.
"""

from __future__ import annotations

import errno
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
    HEADER_BYTES,
    MAGIC,
    TRAILER_BYTES,
    FrameHeader,
    InvalidFrameError,
    decode_header,
    is_blank,
    part_of,
    read_directory,
)
from kmq_storage.format.identity import Identity
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.files.folder import LogFolder
from kmq_storage.log.files.hint import Hint
from kmq_storage.objects.disk import Disk, LogFile
from kmq_storage.objects.files import Bytes
from kmq_storage.objects.mapping import is_readable

_SEARCH_STEP = 1024 * 1024
_UNREADABLE = "the disk can't read it"


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """A frame whose header, directory and trailer are verified, but not yet its batches."""

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
        """The entries of the commit."""
        return list(decode_entries(self.directory))

    def staged_files(self) -> set[str]:
        """The files outside the log that the commit refers to."""
        entries = (entry for entry in self.entries() if isinstance(entry, RecordsEntry))
        return {paths.staged_file(entry.staged) for entry in entries if entry.staged}


class CollectedError(Exception):
    """The frames from this place on were collected: the log begins later."""


class Journal:
    """The log files of one store, as opened by one reader or writer."""

    def __init__(self, disk: Disk, identity: Identity, hint: Hint) -> None:
        self._disk = disk
        self._seed = identity.seed
        self.hint = hint
        self.folder = LogFolder(disk, identity.log_file_bytes, hint)

    def next_frame(self, cursor: Cursor, *, whole: bool = False) -> StoredFrame | None:
        """The frame after the cursor, or None where the log ends.

        InvalidFrameError when the bytes there are not that frame. With `whole`, the record batches
        of the frame are verified, too.
        """
        here = self.locate(cursor)
        log = self.folder.contents(here.file)
        if log is None or self._is_blank(log, here):
            return None
        header = decode_header(log, here.position, self._seed)
        if header.lsn != cursor.lsn + 1 or cursor.chain not in (None, header.previous):
            raise InvalidFrameError("the frame does not follow its predecessor")
        frame = self._frame(log, header, here.file, here.position)
        if whole:
            self.verify_batches(frame)
        return frame

    def try_next(self, cursor: Cursor, *, whole: bool = False) -> tuple[StoredFrame | None, str]:
        """The result of `next_frame`, and a reason for the case that there is no valid frame."""
        try:
            return self.next_frame(cursor, whole=whole), "frames are missing"
        except InvalidFrameError as error:
            return None, str(error)

    def _is_blank(self, log: pa.Buffer, here: Cursor) -> bool:
        self._check_readable(log, here.file, here.position, HEADER_BYTES)
        return is_blank(log, here.position)

    def _header(self, log: pa.Buffer, file: int, position: int) -> FrameHeader:
        self._check_readable(log, file, position, HEADER_BYTES)
        return decode_header(log, position, self._seed)

    def _frame(self, log: pa.Buffer, header: FrameHeader, file: int, position: int) -> StoredFrame:
        if not self.folder.is_known_readable(file, log, position, header.length):
            self._check_readable(log, file, position, HEADER_BYTES + header.directory_length)
            end = position + header.length
            self._check_readable(log, file, end - TRAILER_BYTES, TRAILER_BYTES)
        return StoredFrame(header, read_directory(log, position, header), file, position)

    def _check_readable(self, log: pa.Buffer, file: int, position: int, length: int) -> None:
        if not self.folder.is_readable(file, log, position, length):
            raise InvalidFrameError(_UNREADABLE)

    def has_bytes_at(self, cursor: Cursor) -> bool:
        """Whether there are bytes where the next frame will be written."""
        try:
            here = self.locate(cursor)
            log = self.folder.contents(here.file)
            return log is not None and not self._is_blank(log, here)
        except InvalidFrameError:
            return True

    def has_bytes_behind(self, cursor: Cursor) -> bool:
        """Whether there are bytes anywhere behind the cursor, so that a blank is not the end."""
        here = self.try_locate(cursor)
        if any(first > cursor.lsn + 1 for first in self.folder.first_lsns):
            return True
        log = self.folder.open(here.file)
        return log is not None and log.has_data_from(here.position)

    def verify_batches(self, frame: StoredFrame) -> None:
        """Verify the record batches of a frame; InvalidFrameError when one is damaged."""
        for entry in frame.entries():
            if isinstance(entry, RecordsEntry):
                batch = self._batch(frame, entry)
                if not is_readable(batch):
                    raise InvalidFrameError(_UNREADABLE)
                if batch.size < entry.length or checksum(batch) != entry.checksum:
                    raise InvalidFrameError("record batch checksum does not match")

    def _batch(self, frame: StoredFrame, entry: RecordsEntry) -> pa.Buffer:
        if not entry.staged:
            return part_of(self.raw(frame), entry.position, entry.length)
        try:
            contents = self._disk.map(paths.staged_file(entry.staged))
        except FileNotFoundError:
            raise InvalidFrameError("a staged file is missing") from None
        return part_of(contents, entry.position, entry.length)

    def locate(self, cursor: Cursor) -> Cursor:
        """The same cursor, with the file and position where the next frame really is.

        CollectedError when the log begins after this place.
        """
        file = self.folder.file_of(cursor.lsn + 1) or cursor.file
        if self.folder.first_lsns and cursor.lsn + 1 < self.folder.first_lsns[0]:
            raise CollectedError
        if file == cursor.file:
            return cursor
        position = 0
        # Walks over frames only when a failed sync made a writer replace files under the cursor.
        for lsn in range(file, cursor.lsn + 1):
            log = self.folder.contents(file)
            header = None if log is None else self._header(log, file, position)
            if header is None or header.lsn != lsn:
                raise InvalidFrameError("the log files were replaced")
            position += header.length
        return Cursor(cursor.lsn, cursor.chain, cursor.time, file, position)

    def try_locate(self, cursor: Cursor) -> Cursor:
        """As `locate`, but the cursor itself when no valid frames lead to its place."""
        try:
            return self.locate(cursor)
        except InvalidFrameError:
            return cursor

    def append(self, cursor: Cursor, buffers: list[Bytes], length: int) -> Cursor:
        """Write a frame at the cursor, in a new file when it doesn't fit; returns its place.

        Only under the append lock.
        """
        folder = self.folder
        if length > folder.file_bytes:
            raise InvalidRequestError(
                f"a commit of {length} bytes doesn't fit into a log file of {folder.file_bytes}; "
                "send less at once",
                length=length,
            )
        here = self.locate(cursor)
        if not folder.is_settled:  # the process that changed the files died; they stay like this
            self.hint.count_roll(cursor.lsn)
        log, contents = folder.open(here.file), folder.contents(here.file)
        if log is None or contents is None or here.position + length > contents.size:
            here = Cursor(cursor.lsn, cursor.chain, cursor.time, cursor.lsn + 1, 0)
            log = folder.add(here.file)
        elif here.position == 0:
            # The process that made the file may have died before it synced the file's name, and
            # before it told others of the file.
            self._disk.sync_names(paths.LOG_FOLDER)
            self.hint.count_roll(here.file)
        if cursor.lsn == 0:
            self.note_begun()
        log.write_at(here.position, buffers, length)
        return here

    def note_begun(self) -> None:
        """Record durably, outside of the log's folder, that the log was begun.

        If all log files are lost, this tells the store from a new one.
        """
        self._disk.sync_names(paths.LOG_FOLDER)  # the files' creator may have died before this
        self._disk.publish(paths.BEGUN, (), sync=True)

    def cut(self, cursor: Cursor) -> None:
        """Overwrite a torn tail with zeros, so that the log ends at the cursor."""
        here = self.locate(cursor)
        log = self.folder.open(here.file)
        if log is not None:
            log.clear_from(here.position)
        behind = max(here.file, cursor.lsn + 1)
        later = [first for first in self.folder.first_lsns if first > behind]
        if later:
            self.folder.replace(cursor.lsn, (), later)
        # A process that removed files may have died before the removal was on disk.
        self._disk.sync_names(paths.LOG_FOLDER)

    def drop_before(self, lsn: int) -> list[str]:
        """Remove log files whose commits are all before this LSN; returns their names.

        The last file always stays. Only under the append lock. A reader that is still at the
        removed commits goes on from a checkpoint.
        """
        self.folder.look_again()
        files = self.folder.first_lsns
        dropped = [first for first, following in pairwise(files) if following <= lsn]
        if dropped:
            self.folder.replace(lsn, (), dropped)
        return [paths.log_file(first) for first in dropped]

    def sync(self, first: int, last: int) -> None:
        """Sync the files with frames `first` to `last`, both included."""
        begin = self.folder.file_of(first) or 0
        for file in self.folder.first_lsns:
            if begin <= file <= last and (log := self.folder.open(file)) is not None:
                log.sync()

    def sync_staged(self, files: set[str]) -> None:
        """Sync these staged files."""
        if files:
            self._disk.sync_staged(files)

    def has_staged(self, file: str) -> bool:
        """Whether this staged file exists."""
        return self._disk.exists(file)

    def stage_again(self, files: set[str]) -> None:
        """Write these staged files into fresh blocks, after their sync failed."""
        for file in files:
            self._disk.stage_again(file)

    def start_of(self, lsn: int) -> Cursor:
        """A cursor at or before the frame with this LSN, from which reading on reaches it."""
        file = self.folder.file_of(lsn) or 1
        return Cursor(file - 1, None if file > 1 else 0, 0, file, 0)

    def raw(self, frame: StoredFrame) -> pa.Buffer:
        """All bytes of a frame; those of its batches may not be readable."""
        log = self.folder.contents(frame.file)
        assert log is not None, "the frame was read there"
        return log.slice(frame.position, frame.header.length)

    def replace_from(self, cursor: Cursor, frames: list[bytes]) -> None:
        """Replace all log files after the cursor by fresh, synced files with these frames.

        This follows a failed sync, since a file whose sync failed must never be synced again.
        Only under both locks. Fresh files are created from the last to the first, then old files
        are removed from the first to the last. So after a crash in between, every frame is found.
        """
        lsn, fresh = cursor.lsn + 1, dict[int, list[bytes]]()
        for run in [*cut(frames, len, self.folder.file_bytes)] or [[]]:
            fresh[lsn] = run
            lsn += len(run)
        later = (first for first in self.folder.first_lsns if first > cursor.lsn)
        old = [first for first in later if first not in fresh]
        self.folder.replace(cursor.lsn, sorted(fresh.items(), reverse=True), old)

    def renew(self, first: int, end: Cursor) -> None:
        """Rewrite the files with frames from LSN `first` to `end`, with the same bytes, synced.

        All frames keep their positions. Only under the append lock.
        """
        here, begin = self.locate(end), self.folder.file_of(first) or 0
        files = [each for each in self.folder.first_lsns if begin <= each <= here.file]
        self.folder.replace(first, self._until(here, files))

    def _until(self, end: Cursor, files: list[int]) -> Iterator[tuple[int, list[bytes]]]:
        """The bytes of these files, up to `end` in the last one."""
        for file in files:
            log = self.folder.contents(file)
            length = end.position if file == end.file else self.folder.file_bytes
            if log is not None:
                kept = log.slice(0, min(length, log.size))
                if not is_readable(kept):  # writing zeros instead would make the damage permanent
                    raise OSError(errno.EIO, _UNREADABLE, paths.log_file(file))
                yield file, [kept.to_pybytes()]

    def try_resync(self, cursor: Cursor) -> tuple[Cursor, StoredFrame] | None:
        """Search behind a damaged frame for the next valid frame; it and the place before it."""
        here = self.try_locate(cursor)
        for file in [here.file, *(f for f in self.folder.first_lsns if f > here.file)]:
            start = here.position + ALIGNMENT if file == here.file else 0
            found = self._search(file, start, cursor.lsn + 2)
            if found is not None:
                before = Cursor(
                    found.header.lsn - 1, found.header.previous, 0, file, found.position
                )
                return before, found
        return None

    def _search(self, file: int, start: int, lsn: int) -> StoredFrame | None:
        opened, log = self.folder.open(file), self.folder.contents(file)
        if opened is None or log is None:
            return None
        for position in _magic_positions(opened, start):
            try:
                header = self._header(log, file, position)
                if header.lsn >= lsn and self.folder.file_of(header.lsn) == file:
                    return self._frame(log, header, file, position)
            except InvalidFrameError:
                continue
        return None


def _magic_positions(log: LogFile, start: int) -> Iterator[int]:
    """Every aligned position with the magic bytes of a frame."""
    for base in range(start - start % _SEARCH_STEP, log.contents().size, _SEARCH_STEP):
        window = log.read(base, _SEARCH_STEP)
        found = window.find(MAGIC, max(start - base, 0))
        while found >= 0:
            if found % ALIGNMENT == 0:
                yield base + found
            found = window.find(MAGIC, found + 1)
