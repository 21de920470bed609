"""A folder that keeps what was read of buckets, for every process of this host.

Only files with an id of their own in their name are kept here: staged batches, segments, pages.
They never change, whatever becomes of the store; a commit's name may be used again by another.
Each file proves itself by a checksum when it is used. Nothing here is ever missed: what can't be
written, or was deleted by anybody at any moment, is fetched again.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.format.checksum import checksum
from kmq_storage.objects.bucket import Fetched
from kmq_storage.objects.mapping import brought_in, mapped_file

#: Checksum of what follows, bytes of the whole object; then the part of it.
_HEADER = struct.Struct("<IxxxxQ")
#: When there is no room, this share of the limit is made free.
_SHARE = 0.05
#: Whoever names a folder may have files there: all that is counted and deleted stands in this one.
_OWN = "kmq-cache"
#: How many bytes there are at most, by all who write here; its lock is held while they count.
_COUNT = "used"
_USED = struct.Struct("<Q")
#: Who counts has the lock for microseconds, or for the milliseconds that it takes to make room.
_TRIES, _PAUSE = 500, 0.001

Part = tuple[str, int, int]


class CacheFolder:
    """Parts of objects as files; those used longest ago go first when there are too many bytes."""

    def __init__(self, folder: Path, url: str, max_bytes: int) -> None:
        self._folder = folder / _OWN
        self._url = url
        self._max_bytes = max_bytes

    def get(self, part: Part) -> Fetched | None:
        """A part that is here and whole."""
        if not part[0].startswith(paths.ID_PREFIXES):
            return None
        path = self._path(part)
        try:
            # What the disk can't read is zeros, which are no proof.
            contents = brought_in(mapped_file(str(path)))
            os.utime(path)
        except OSError:
            return None
        if contents.size >= _HEADER.size:
            expected, size = _HEADER.unpack(contents.slice(0, _HEADER.size))
            data = contents.slice(_HEADER.size)
            if _proof(data, size) == expected:
                return Fetched(data, size)
        with suppress(OSError):
            path.unlink()  # torn or damaged
        return None

    def put(self, part: Part, fetched: Fetched) -> None:
        """Keep a part, if there is room on the disk."""
        size = _HEADER.size + fetched.data.size
        if not part[0].startswith(paths.ID_PREFIXES) or size > self._max_bytes:
            return
        with suppress(OSError):
            self._write(self._path(part), fetched, size)

    def _write(self, path: Path, fetched: Fetched, size: int) -> None:
        """Whole or not at all: others read meanwhile."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = self._begin(path.parent, size)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_HEADER.pack(_proof(fetched.data, fetched.size), fetched.size))
                file.write(fetched.data)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink()
            raise

    def _begin(self, folder: Path, size: int) -> tuple[int, str]:
        """A file that has its size but not its contents, for which room was made if need be.

        All who write here count in one file, one at a time: so no number of them is too much.
        """
        count = os.open(self._folder / _COUNT, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(count)
            known = os.pread(count, _USED.size, 0)
            used = _USED.unpack(known)[0] if len(known) == _USED.size else self._max_bytes
            if used + size > self._max_bytes:
                used = self._make_room(size)
            # First: who is killed in between has counted too much, never too little.
            os.pwrite(count, _USED.pack(used + size), 0)
            return _of_size(folder, size)
        finally:
            os.close(count)

    def _path(self, part: Part) -> Path:
        name, start, length = part
        key = sha256(f"{self._url}\0{name}\0{start}\0{length}".encode()).hexdigest()
        return self._folder / key[:2] / key[2:]

    def _make_room(self, size: int) -> int:
        """Delete what was used longest ago, until so much fits in again; how much is left."""
        found = sorted(self._files(), key=lambda each: each[1].st_mtime_ns)
        used = sum(stat.st_size for _, stat in found)
        enough = min((1 - _SHARE) * self._max_bytes, self._max_bytes - size)
        for path, stat in found:
            if used <= enough:
                break
            with suppress(FileNotFoundError):
                path.unlink()
            used -= stat.st_size
        return used

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self._folder.glob("??/*"):
            with suppress(OSError):  # deleted by another process just now
                yield path, path.stat()


def _of_size(folder: Path, size: int) -> tuple[int, str]:
    """A new file of this size, open for writing, and its name."""
    handle, name = tempfile.mkstemp(dir=folder)
    try:
        os.truncate(handle, size)
    except OSError:
        os.close(handle)
        Path(name).unlink()
        raise
    return handle, name


def _lock(fd: int) -> None:
    """Take the lock of an open file; BlockingIOError when its holder seems to be stopped."""
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        SYSTEM.sleep(_PAUSE)
    raise BlockingIOError


def _proof(data: pa.Buffer, size: int) -> int:
    return checksum(data, size & 0xFFFF_FFFF)
