"""A folder that caches parts of objects for all processes of this host.

Only files with an own id in their name are cached: staged batches, segments and pages. They never
change, whatever happens to the store, while the name of a commit may be used again. Each file has a
checksum, which is verified when it is used. Files may fail to be written or be deleted at any time;
they are then fetched again.
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

#: The header of a file: a checksum, and the size of the whole object. The part follows.
_HEADER = struct.Struct("<IxxxxQ")
#: When there is no room, at least this share of the limit is freed.
_SHARE = 0.05
#: A subfolder of the user's folder, which may have other files. Only files in it are deleted.
_OWN = "kmq-cache"
#: A file with an upper bound of the used bytes; its lock is held while a process updates it.
_COUNT = "used"
_USED = struct.Struct("<Q")
#: The lock is held for microseconds, or for some milliseconds to make room.
_TRIES, _PAUSE = 500, 0.001

Part = tuple[str, int, int]


class CacheFolder:
    """Parts of objects as files; the files used longest ago are deleted first."""

    def __init__(self, folder: Path, url: str, max_bytes: int) -> None:
        self._folder = folder / _OWN
        self._url = url
        self._max_bytes = max_bytes

    def get(self, part: Part) -> Fetched | None:
        """A cached part, if it is valid; else None."""
        if not part[0].startswith(paths.ID_PREFIXES):
            return None
        path = self._path(part)
        try:
            # Bytes that the disk can't read become zeros, which don't match the checksum.
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
        """Add a part, if there is room on the disk."""
        size = _HEADER.size + fetched.data.size
        if not part[0].startswith(paths.ID_PREFIXES) or size > self._max_bytes:
            return
        with suppress(OSError):
            self._write(self._path(part), fetched, size)

    def _write(self, path: Path, fetched: Fetched, size: int) -> None:
        """Write a file atomically, since other processes read meanwhile."""
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
        """Create an empty file of the full size, after making room if needed.

        All processes count in one file, one at a time, so together they keep to the limit.
        """
        count = os.open(self._folder / _COUNT, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(count)
            known = os.pread(count, _USED.size, 0)
            used = _USED.unpack(known)[0] if len(known) == _USED.size else self._max_bytes
            if used + size > self._max_bytes:
                used = self._make_room(size)
            # Counted first: a process that is killed then has counted too much, never too little.
            os.pwrite(count, _USED.pack(used + size), 0)
            return _of_size(folder, size)
        finally:
            os.close(count)

    def _path(self, part: Part) -> Path:
        name, start, length = part
        key = sha256(f"{self._url}\0{name}\0{start}\0{length}".encode()).hexdigest()
        return self._folder / key[:2] / key[2:]

    def _make_room(self, size: int) -> int:
        """Delete the files used longest ago until there is room; returns the bytes left."""
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
