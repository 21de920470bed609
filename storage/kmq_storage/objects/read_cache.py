"""What was fetched from a bucket and may be wanted again, up to a number of bytes.

Objects of a store never change, so what is here stays right, unless the server sent something else
when it was fetched: whoever finds that out has it forgotten. It is in memory and, if there is a
folder for it, on a disk that processes share.
"""

from __future__ import annotations

import mmap
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from kmq_storage.objects.bucket import Bucket, Fetched
from kmq_storage.objects.cache_folder import CacheFolder, Part

#: The first bytes of an object are fetched at once: small objects then need one request.
HEAD_BYTES = 1024 * 1024

#: Requests on their way ahead of a reader.
_THREADS = 16
#: What waits for its readers takes at most this share of the bytes that are kept.
_WAITING_SHARE = 0.75
#: Who did not come for a part while so many others were asked for does not come any more.
_LEFT_AFTER = 1_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A part that was fetched ahead, or is on its way, and was not asked for yet."""

    length: int
    #: How many parts had been asked for when it was sent for.
    asked: int


class ReadCache:
    """Parts of objects by (name, start, length).

    Those used longest ago go first. What was fetched ahead goes last until it is used: its reader
    comes for it soon, and must not find that what it needs no more was kept instead.
    """

    def __init__(self, bucket: Bucket, max_bytes: int, folder: CacheFolder | None) -> None:
        self._bucket = bucket
        self._max_bytes = max_bytes
        #: Where more is kept, and longer.
        self._folder = folder
        self._parts: OrderedDict[Part, Fetched] = OrderedDict()
        #: Objects of which the folder may have other bytes than the bucket.
        self._doubted: set[str] = set()
        #: What is kept now.
        self.held_bytes = 0
        self._coming: dict[Part, Future[Fetched]] = {}
        self._waiting: OrderedDict[Part, _Waiting] = OrderedDict()
        self._waiting_bytes = 0
        self._asked = 0
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def contents(self, name: str, first: tuple[int, int]) -> pa.Buffer | RemoteContents:
        """An object to slice from, of which these bytes (start, length) are looked at first."""
        part = _part_with(name, *first)
        found = self._part(part)
        if found.size == found.data.size:
            return found.data
        return RemoteContents(self, name, found.size, (part[1], found.data))

    def part(self, name: str, start: int, length: int) -> pa.Buffer:
        """Some bytes of an object; fewer where it ends before."""
        part = _part_with(name, start, length)
        return _cut(self._part(part).data, start - part[1], length)

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
        """Keep what was fetched, and forget what is needed least."""
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
        """Forget what was used longest ago, of what nobody waits for if there is such a part."""
        oldest = next((part for part in self._parts if part not in self._waiting), None)
        oldest = oldest or next(iter(self._parts))
        self._wait_no_more(oldest)
        self.held_bytes -= self._parts.pop(oldest).data.size

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
        """Keep a small object that somebody read or wrote whole."""
        if data.size <= HEAD_BYTES:
            self.add((name, 0, HEAD_BYTES), Fetched(data, data.size))

    def forget(self, name: str) -> None:
        """Fetch an object from the bucket from now on, whatever is kept of it."""
        with self._lock:
            self._doubted.add(name)
            for part in [each for each in self._parts if each[0] == name]:
                self._wait_no_more(part)
                self.held_bytes -= self._parts.pop(part).data.size

    def fetch_ahead(self, name: str, start: int, length: int) -> None:
        """Begin to fetch what will be asked for soon, if it can be kept until then."""
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
        """Whether so many bytes may wait for their reader; forgets those whose reader went away."""
        while self._waiting_bytes + length > _WAITING_SHARE * self._max_bytes:
            oldest = next(iter(self._waiting), None)
            if oldest is None or self._asked - self._waiting[oldest].asked < _LEFT_AFTER:
                return False
            self._wait_no_more(oldest)
        return True

    def close(self) -> None:
        """Forget everything, and stop fetching."""
        with self._lock:
            pool, self._pool = self._pool, None
            self._parts.clear()
            self._waiting.clear()
            self._waiting_bytes = 0
            self.held_bytes = 0
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


#: Where some bytes of an object begin, and they themselves.
Known = tuple[int, pa.Buffer]


class RemoteContents:
    """An object to slice from like a buffer; only what is looked at is fetched."""

    def __init__(self, cache: ReadCache, name: str, size: int, first: Known) -> None:
        self._cache = cache
        self._name = name
        self.size = size
        #: What was fetched to know the size, until somebody looked: it may be too much to be kept.
        self._first: Known | None = first

    def slice(self, start: int = 0, length: int | None = None) -> pa.Buffer:
        """The bytes from a position on."""
        rest = self.size - start if length is None else min(length, self.size - start)
        return self._part(start, max(rest, 0))

    def parts(self, start: int, length: int, runs: Sequence[tuple[int, int]]) -> pa.Buffer:
        """The bytes from a position on, of which only some runs (start, end) are fetched.

        What stands between them takes no memory and means nothing.
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
        """All bytes."""
        whole: bytes = self.slice().to_pybytes()
        return whole


def _part_with(name: str, start: int, length: int) -> Part:
    """The part that is fetched for some bytes of an object."""
    if start + length <= HEAD_BYTES:
        return name, 0, HEAD_BYTES
    return name, start, length


def _cut(data: pa.Buffer, start: int, length: int) -> pa.Buffer:
    start = min(start, data.size)
    return data.slice(start, min(length, data.size - start))
