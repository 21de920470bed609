"""A folder that keeps what was read of buckets, for every process of this host.

Only files with an id of their own in their name are kept here: staged batches, segments, pages.
They never change, whatever becomes of the store; a commit's name may be used again by another.
Each file proves itself by a checksum when it is used. Nothing here is ever missed: what can't be
written, or was deleted by anybody at any moment, is fetched again.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.format.checksum import checksum
from kmq_storage.objects.bucket import Fetched

_KEPT = tuple(f"{each}/" for each in (paths.STAGED_FOLDER, paths.SEGMENT_FOLDER, paths.PAGE_FOLDER))
#: Checksum of what follows, bytes of the whole object; then the part of it.
_HEADER = struct.Struct("<IxxxxQ")
#: Room is made when this share of the limit was written since the last time, and down to there.
_SHARE = 0.05

Part = tuple[str, int, int]


class CacheFolder:
    """Parts of objects as files; those used longest ago go first when there are too many bytes."""

    def __init__(self, folder: Path, url: str, max_bytes: int) -> None:
        self._folder = folder
        self._url = url
        self._max_bytes = max_bytes
        self._written_since = max_bytes  # unknown: other processes write here, too

    def get(self, part: Part) -> Fetched | None:
        """A part that is here and whole."""
        if not part[0].startswith(_KEPT):
            return None
        path = self._path(part)
        try:
            contents = pa.memory_map(str(path)).read_buffer()
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
        if not part[0].startswith(_KEPT) or fetched.data.size > self._max_bytes:
            return
        with suppress(OSError):
            self._write(self._path(part), fetched)
        self._written_since += fetched.data.size
        if self._written_since > _SHARE * self._max_bytes:
            self._written_since = 0
            self._make_room()

    def _write(self, path: Path, fetched: Fetched) -> None:
        """Whole or not at all: others read meanwhile."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_HEADER.pack(_proof(fetched.data, fetched.size), fetched.size))
                file.write(fetched.data)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink()
            raise

    def _path(self, part: Part) -> Path:
        name, start, length = part
        key = sha256(f"{self._url}\0{name}\0{start}\0{length}".encode()).hexdigest()
        return self._folder / key[:2] / key[2:]

    def _make_room(self) -> None:
        found = sorted(self._files(), key=lambda each: each[1].st_mtime_ns)
        too_many = sum(stat.st_size for _, stat in found) - (1 - _SHARE) * self._max_bytes
        for path, stat in found:
            if too_many <= 0:
                return
            with suppress(OSError):
                path.unlink()
            too_many -= stat.st_size

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self._folder.glob("??/*"):
            with suppress(OSError):  # deleted by another process just now
                yield path, path.stat()


def _proof(data: pa.Buffer, size: int) -> int:
    return checksum(data, size & 0xFFFF_FFFF)
