"""A bucket that notes what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import kmq_spark as kmq
from kmq_storage.environment import SYSTEM
from kmq_storage.log.open import open_commit_log
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.bucket import Fetched
from kmq_storage.objects.bucket_files import CACHE_BYTES, BucketFiles
from tests.support.memory_bucket import MemoryBucket


@dataclass(frozen=True)
class Asked:
    """A request for an object, and the bytes that it was answered with."""

    name: str
    start: int
    length: int | None
    answered: int


class CountingBucket(MemoryBucket):
    """Notes every GET, also of what is missing."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[Asked] = []

    def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
        """An object from a byte on, at most `length` bytes; less where it ends before."""
        answered = 0
        try:
            found = super().get(name, start, length)
            answered = found.data.size
        finally:
            self.asked.append(Asked(name, start, length, answered))
        return found

    def below(self, folder: str) -> list[Asked]:
        """What was asked for below a folder."""
        return [each for each in self.asked if each.name.startswith(f"{folder}/")]

    @contextmanager
    def store(self, cache_bytes: int = CACHE_BYTES) -> Iterator[kmq.Store]:
        """The store here, which nobody maintains, with nothing in its cache."""
        files = BucketFiles(self, cache_bytes=cache_bytes)
        identity = open_identity(files, SYSTEM, create=True)
        with kmq.Store(open_commit_log(files, identity, SYSTEM), maintenance=False) as store:
            yield store
