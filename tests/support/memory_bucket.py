"""A bucket in the memory of one process: for tests and simulations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

import pyarrow as pa

from kmq_storage.objects.bucket import Fetched, Put, joined_bytes, prefix_of, url_beside
from kmq_storage.objects.files import Bytes, FoundFile


class MemoryBucket:
    """Objects in a dictionary, with the clock of the store as an argument."""

    def __init__(
        self, url: str, *, clock: Callable[[], int] = lambda: time.time_ns() // 1000
    ) -> None:
        self.url = url
        self.prefixes: dict[str, Self] = {prefix_of(url): self}
        self.objects: dict[str, bytes] = {}
        self._times: dict[str, int] = {}
        self._clock = clock
        self._guard = threading.Lock()

    def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
        """An object from a byte on, at most `length` bytes; less where it ends before."""
        try:
            body = self.objects[name]
        except KeyError:
            raise FileNotFoundError(name) from None
        end = len(body) if length is None else start + length
        return Fetched(pa.py_buffer(body[start:end]), len(body))

    def modified(self, name: str) -> int:
        """When an object was written, UTC microseconds by the store's own clock."""
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self._times[name]

    def put(self, name: str, buffers: Iterable[Bytes]) -> None:
        """Write an object, whatever was there; only for names that one writer has alone."""
        with self._guard:
            self.objects[name] = joined_bytes(buffers)
            self._times[name] = self._clock()

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        """Create an object if its name is free."""
        with self._guard:
            if name in self.objects:
                return Put.TAKEN
            self.objects[name] = joined_bytes(buffers)
            self._times[name] = self._clock()
        return Put.CREATED

    def list(self, folder: str, after: str = "") -> Iterator[FoundFile]:
        """The objects below a folder by name, those behind `after` if it is given."""
        with self._guard:
            prefix = f"{folder}/" if folder else ""
            inside = (name for name in self.objects if name.startswith(prefix))
            found = [
                FoundFile(name, len(self.objects[name]), self._times[name])
                for name in sorted(name for name in inside if name > after)
            ]
        return iter(found)

    def delete(self, *names: str) -> None:
        """Delete objects; nothing happens to missing ones."""
        with self._guard:
            for name in names:
                self.objects.pop(name, None)
                self._times.pop(name, None)

    def beside(self, prefix: str) -> Self:
        """The same bucket at another prefix; all of a bucket know each other."""
        if prefix not in self.prefixes:
            other = type(self)(url_beside(self.url, prefix), clock=self._clock)
            other.prefixes = self.prefixes
            self.prefixes[prefix] = other
        return self.prefixes[prefix]

    def close(self) -> None:
        """Nothing was lent."""
