"""A cache of parts of objects, up to a number of bytes.

Objects of a store never change, so cached parts stay valid. If the server sent wrong bytes, the
reader that finds out drops them from the cache. Parts are in memory and, if there is a cache
folder, on a disk that processes share.
"""

from __future__ import annotations

import mmap
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from kmq_storage.format.frame import part_of
from kmq_storage.objects.bucket import Bucket, Fetched
from kmq_storage.objects.cache_folder import CacheFolder, Part
from kmq_storage.objects.fork import reopen_in_child

#: This many first bytes of an object are fetched at once, so that small objects need one request.
HEAD_BYTES = 1024 * 1024

#: How many parts are fetched ahead of a reader in parallel.
_THREADS = 16
#: The most of the cache that parts fetched ahead may take before they are used.
_WAITING_SHARE = 0.75
#: After this many requests for other parts, a part that was fetched ahead counts as abandoned.
_LEFT_AFTER = 1_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A part that is, or was, fetched ahead and was not used yet."""

    length: int
    #: The number of requests before it was fetched.
    asked: int


class ReadCache:
    """Parts of objects by (name, start, length).

    The parts used longest ago are dropped first. Parts that were fetched ahead are dropped last
    until they are used, since their reader needs them soon.
    """

    def __init__(self, bucket: Bucket, max_bytes: int, folder: CacheFolder | None) -> None:
        self._bucket = bucket
        self._max_bytes = max_bytes
        #: A larger cache on a disk.
        self._folder = folder
        self._parts: OrderedDict[Part, Fetched] = OrderedDict()
        #: Objects whose bytes in the folder may be wrong.
        self._doubted: set[str] = set()
        #: The bytes of all cached parts.
        self.held_bytes = 0
        self._coming: dict[Part, Future[Fetched]] = {}
        self._waiting: OrderedDict[Part, _Waiting] = OrderedDict()
        self._waiting_bytes = 0
        self._asked = 0
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        reopen_in_child(self._after_fork)

    def _after_fork(self) -> None:
        """Wait for no thread of the parent: one may hold the lock, or fetch a part."""
        self._lock, self._pool, self._coming = threading.Lock(), None, {}

    def contents(self, name: str, first: tuple[int, int]) -> pa.Buffer | RemoteContents:
        """An object to slice from; its bytes `first` (start, length) are fetched at once."""
        part = _part_with(name, *first)
        found = self._part(part)
        if found.size == found.data.size:
            return found.data
        return RemoteContents(self, name, found.size, (part[1], found.data))

    def part(self, name: str, start: int, length: int) -> pa.Buffer:
        """Some bytes of an object; fewer at its end."""
        part = _part_with(name, start, length)
        return part_of(self._part(part).data, start - part[1], length)

    def _part(self, part: Part) -> Fetched:
        with self._lock:
            self._asked += 1
            self._wait_no_more(part)
            found = self._parts.get(part)
            if found is not None:
                self._parts.move_to_end(part)
                return found
            coming = self._coming.get(part)
        return coming.result() if coming is not None else self._fetch(part)

    def _fetch(self, part: Part) -> Fetched:
        name, start, length = part
        try:
            kept = self._folder if name not in self._doubted else None
            fetched = kept.get(part) if kept else None
            if fetched is None:
                fetched = self._bucket.get(name, start, length)
                if self._folder:
                    self._folder.put(part, fetched)
            self.add(part, fetched)
            return fetched
        finally:
            with self._lock:
                self._coming.pop(part, None)
                if part not in self._parts:
                    self._wait_no_more(part)

    def add(self, part: Part, fetched: Fetched) -> None:
        """Add a fetched part, and drop the parts needed least if there are too many bytes."""
        if fetched.data.size > self._max_bytes:
            return
        with self._lock:
            known = self._parts.pop(part, None)
            self.held_bytes += fetched.data.size - (known.data.size if known else 0)
            self._parts[part] = fetched
            if part in self._waiting:
                self._wait(part, fetched.data.size)
            while self.held_bytes > self._max_bytes:
                self._forget_one()

    def _forget_one(self) -> None:
        """Drop the part used longest ago, but an unused one that was fetched ahead only at last."""
        oldest = next((part for part in self._parts if part not in self._waiting), None)
        self._drop(oldest or next(iter(self._parts)))

    def _drop(self, part: Part) -> None:
        self._wait_no_more(part)
        self.held_bytes -= self._parts.pop(part).data.size

    def _wait(self, part: Part, length: int) -> None:
        known = self._waiting.get(part)
        self._wait_no_more(part)
        self._waiting[part] = _Waiting(length, known.asked if known else self._asked)
        self._waiting_bytes += length

    def _wait_no_more(self, part: Part) -> None:
        waiting = self._waiting.pop(part, None)
        if waiting is not None:
            self._waiting_bytes -= waiting.length

    def add_whole(self, name: str, data: pa.Buffer) -> None:
        """Add a small object that was read or written whole."""
        if data.size <= HEAD_BYTES:
            self.add((name, 0, HEAD_BYTES), Fetched(data, data.size))

    def forget(self, name: str) -> None:
        """Drop all cached parts of an object, and don't use the folder for it any more."""
        with self._lock:
            self._doubted.add(name)
            for part in [each for each in self._parts if each[0] == name]:
                self._drop(part)

    def fetch_ahead(self, name: str, start: int, length: int) -> None:
        """Begin to fetch bytes that will be used soon, if there is room to keep them until then."""
        part = _part_with(name, start, length)
        with self._lock:
            if part in self._parts or part in self._coming or len(self._coming) >= 2 * _THREADS:
                return
            if not self._has_room(part[2]):
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="kmq-fetch")
            self._wait(part, part[2])
            self._coming[part] = self._pool.submit(self._fetch, part)

    def _has_room(self, length: int) -> bool:
        """Whether there is room for unused parts; abandoned ones are no longer protected."""
        while self._waiting_bytes + length > _WAITING_SHARE * self._max_bytes:
            oldest = next(iter(self._waiting), None)
            if oldest is None or self._asked - self._waiting[oldest].asked < _LEFT_AFTER:
                return False
            self._wait_no_more(oldest)
        return True

    def close(self) -> None:
        """Drop all parts, and stop fetching."""
        with self._lock:
            pool, self._pool = self._pool, None
            self._parts.clear()
            self._waiting.clear()
            self._waiting_bytes = 0
            self.held_bytes = 0
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


#: The start of some bytes of an object, and the bytes.
Known = tuple[int, pa.Buffer]


class RemoteContents:
    """An object to slice from like a buffer; only bytes that are used are fetched."""

    def __init__(self, cache: ReadCache, name: str, size: int, first: Known) -> None:
        self._cache = cache
        self._name = name
        self.size = size
        #: The bytes that were fetched first, until the first use: they may not fit into the cache.
        self._first: Known | None = first

    def slice(self, start: int = 0, length: int | None = None) -> pa.Buffer:
        """The bytes from a position on, at most `length`."""
        rest = self.size - start if length is None else min(length, self.size - start)
        return self._part(start, max(rest, 0))

    def parts(self, start: int, length: int, runs: Sequence[tuple[int, int]]) -> pa.Buffer:
        """The bytes from a position on, of which only some runs (start, end) are fetched.

        Bytes between them are undefined, and take no memory.
        """
        if runs == [(0, length)]:
            return self.slice(start, length)
        for first, end in runs[1:]:
            self._cache.fetch_ahead(self._name, start + first, end - first)
        found = mmap.mmap(-1, length)
        for first, end in runs:
            part = self._part(start + first, end - first)
            found[first : first + part.size] = memoryview(part)
        return pa.py_buffer(found)

    def _part(self, start: int, length: int) -> pa.Buffer:
        known, self._first = self._first, None
        if known is not None and known[0] <= start and start + length <= known[0] + known[1].size:
            return known[1].slice(start - known[0], length)
        return self._cache.part(self._name, start, length)

    def to_pybytes(self) -> bytes:
        """All bytes of the object."""
        whole: bytes = self.slice().to_pybytes()
        return whole


def _part_with(name: str, start: int, length: int) -> Part:
    """The part to fetch for some bytes of an object."""
    if start + length <= HEAD_BYTES:
        return name, 0, HEAD_BYTES
    return name, start, length
