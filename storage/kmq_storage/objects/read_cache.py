"""What was fetched from a bucket and may be wanted again, up to a number of bytes.

Objects of a store never change, so what is here is never wrong. It is in memory and, if there is a
folder for it, on a disk that processes share.
"""

from __future__ import annotations

import mmap
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from kmq_storage.objects.bucket import Bucket, Fetched
from kmq_storage.objects.cache_folder import CacheFolder, Part

#: The first bytes of an object are fetched at once: small objects then need one request.
HEAD_BYTES = 1024 * 1024

#: Requests on their way ahead of a reader.
_THREADS = 16


class ReadCache:
    """Parts of objects by (name, start, length); the ones used longest ago go first."""

    def __init__(self, bucket: Bucket, max_bytes: int, folder: CacheFolder | None = None) -> None:
        self._bucket = bucket
        self._max_bytes = max_bytes
        #: Where more is kept, and longer.
        self._folder = folder
        self._parts: OrderedDict[Part, Fetched] = OrderedDict()
        #: What is kept now.
        self.held_bytes = 0
        self._coming: dict[Part, Future[Fetched]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def head(self, name: str) -> Fetched:
        """The first bytes of an object, all of a small one."""
        return self._part((name, 0, HEAD_BYTES))

    def part(self, name: str, start: int, length: int) -> pa.Buffer:
        """Some bytes of an object; fewer where it ends before."""
        if start + length <= HEAD_BYTES:
            return _cut(self.head(name).data, start, length)
        return self._part((name, start, length)).data

    def _part(self, part: Part) -> Fetched:
        with self._lock:
            found = self._parts.get(part)
            if found is not None:
                self._parts.move_to_end(part)
                return found
            coming = self._coming.get(part)
        return coming.result() if coming is not None else self._fetch(part)

    def _fetch(self, part: Part) -> Fetched:
        name, start, length = part
        try:
            fetched = self._folder.get(part) if self._folder else None
            if fetched is None:
                fetched = self._bucket.get(name, start, length)
                if self._folder:
                    self._folder.put(part, fetched)
            self.add(part, fetched)
            return fetched
        finally:
            with self._lock:
                self._coming.pop(part, None)

    def add(self, part: Part, fetched: Fetched) -> None:
        """Keep what was fetched, and forget what was used longest ago."""
        if fetched.data.size > self._max_bytes:
            return
        with self._lock:
            known = self._parts.pop(part, None)
            self.held_bytes += fetched.data.size - (known.data.size if known else 0)
            self._parts[part] = fetched
            while self.held_bytes > self._max_bytes:
                _, oldest = self._parts.popitem(last=False)
                self.held_bytes -= oldest.data.size

    def add_whole(self, name: str, data: pa.Buffer) -> None:
        """Keep a small object that somebody read or wrote whole."""
        if data.size <= HEAD_BYTES:
            self.add((name, 0, HEAD_BYTES), Fetched(data, data.size))

    def fetch_ahead(self, name: str, start: int, length: int) -> None:
        """Begin to fetch what will be asked for soon."""
        part = (name, 0, HEAD_BYTES) if start + length <= HEAD_BYTES else (name, start, length)
        with self._lock:
            if part in self._parts or part in self._coming or len(self._coming) >= 2 * _THREADS:
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="kmq-fetch")
            self._coming[part] = self._pool.submit(self._fetch, part)

    def close(self) -> None:
        """Forget everything, and stop fetching."""
        with self._lock:
            pool, self._pool = self._pool, None
            self._parts.clear()
            self.held_bytes = 0
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


class RemoteContents:
    """An object to slice from like a buffer; only what is looked at is fetched."""

    def __init__(self, cache: ReadCache, name: str) -> None:
        self._cache = cache
        self._name = name
        self.size = cache.head(name).size

    def slice(self, start: int = 0, length: int | None = None) -> pa.Buffer:
        """The bytes from a position on."""
        rest = self.size - start if length is None else min(length, self.size - start)
        return self._cache.part(self._name, start, max(rest, 0))

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
            part = self._cache.part(self._name, start + first, end - first)
            found[first : first + part.size] = memoryview(part)
        return pa.py_buffer(found)

    def to_pybytes(self) -> bytes:
        """All bytes."""
        whole: bytes = self.slice().to_pybytes()
        return whole


def _cut(data: pa.Buffer, start: int, length: int) -> pa.Buffer:
    start = min(start, data.size)
    return data.slice(start, min(length, data.size - start))
