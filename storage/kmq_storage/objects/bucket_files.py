"""The files of a store in a bucket: a file is an object, and no name is ever written twice."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from itertools import chain

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.environment import SYSTEM, Environment
from kmq_storage.format.identity import BucketFacts
from kmq_storage.objects.branch_bucket import BranchBucket
from kmq_storage.objects.bucket import Bucket, Put, joined_bytes, prefix_of
from kmq_storage.objects.cache_folder import CacheFolder
from kmq_storage.objects.files import Bytes, FoundFile
from kmq_storage.objects.lease import Lease, store_time
from kmq_storage.objects.probe import RACES, Race, probe
from kmq_storage.objects.read_cache import ReadCache, RemoteContents

#: What a reader keeps of what it fetched, unless storage_options say otherwise.
CACHE_BYTES = 64 * 1024 * 1024

#: Folders of files that are read in parts.
_SLICED = tuple(
    f"{folder}/" for folder in (paths.LOG_FOLDER, paths.STAGED_FOLDER, paths.SEGMENT_FOLDER)
)

_ATTEMPTS = 5
_PAUSE = 0.1


class BucketFiles:
    """The place of one store in a bucket."""

    def __init__(
        self,
        bucket: Bucket,
        *,
        read_only: bool = False,
        cache_bytes: int = CACHE_BYTES,
        cache_folder: CacheFolder | None = None,
        environment: Environment = SYSTEM,
        races: Sequence[Race] = RACES,
    ) -> None:
        self.bucket = bucket
        self.url = bucket.url
        self.read_only = read_only
        self._cache_bytes, self._cache_folder = cache_bytes, cache_folder
        self._afresh, self._lock = 0, threading.Lock()
        self.cache = self._new_cache()
        self._environment = environment
        #: What is raced for when a store is made here.
        self.races = races
        #: Whether the bucket answers uploads that are to create a name: see `create`.
        self.conditional = True

    @property
    def prefix(self) -> str:
        """Where the store is inside its bucket."""
        return prefix_of(self.url)

    def beside(self, prefix: str) -> BucketFiles:
        """The place of another store in the same bucket, to read only."""
        return BucketFiles(
            self.bucket.beside(prefix),
            read_only=True,
            cache_bytes=0,
            environment=self._environment,
        )

    def with_origins(self, prefixes: Iterable[str]) -> BucketFiles:
        """The same place, with the shared files of the stores at these prefixes."""
        origins = [self.bucket.beside(prefix) for prefix in prefixes]
        files = BucketFiles(
            BranchBucket(self.bucket, origins),
            read_only=self.read_only,
            cache_bytes=self._cache_bytes,
            cache_folder=self._cache_folder,
            environment=self._environment,
            races=self.races,
        )
        files.conditional = self.conditional
        return files

    def named(self, path: str) -> str:
        """The object that stands for a file."""
        return paths.in_bucket(path)

    def exists(self, path: str) -> bool:
        """Whether the object is there."""
        try:
            self.bucket.modified(path)
        except FileNotFoundError:
            return False
        return True

    def list(self, folder: str) -> list[str]:
        """The bare names in a folder, sorted; none when the folder is missing."""
        names = (found.path.removeprefix(f"{folder}/") for found in self.bucket.list(folder))
        return sorted(name for name in names if "/" not in name)

    def walk(self, folder: str) -> Iterator[FoundFile]:
        """The objects below a folder, by name."""
        return self.bucket.list(folder)

    def walk_shared(self, folder: str) -> Iterator[FoundFile]:
        """The files of other stores that are read here, too."""
        origins = self.bucket.origins if isinstance(self.bucket, BranchBucket) else ()
        return chain.from_iterable(bucket.list(folder) for bucket in origins)

    def now(self) -> int:
        """The time by the clock of the store, UTC microseconds: an object is written for it."""
        return store_time(self.bucket, paths.CLOCK_FOLDER, self._environment)

    def read(self, path: str) -> bytes:
        """A whole small object, as it is now."""
        whole: bytes = self.bucket.get(path).data.to_pybytes()
        return whole

    def map(self, path: str, first: tuple[int, int] = (0, 0)) -> pa.Buffer | RemoteContents:
        """A file with records to slice from, fetched as it is looked at; any other one whole."""
        name = self.named(path)
        contents = self.cache.contents(name, first)
        return contents if name.startswith(_SLICED) else contents.slice()

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> bool:
        """Begin to fetch parts of files (path, position, length) that will be mapped soon."""
        for path, position, length in places:
            self.cache.fetch_ahead(self.named(path), position, length)
        return True

    @contextmanager
    def afresh(self) -> Iterator[None]:
        """While this lasts, nothing counts that was fetched before, by this process or another.

        Who reads meanwhile does so afresh, too: what they fetch is as new.
        """
        self._forget(1)
        try:
            yield
        finally:
            self._forget(-1)

    def forget(self, path: str) -> bool:
        """Have an object fetched once more: the bytes that were don't prove themselves."""
        self.cache.forget(self.named(path))
        return True

    def _forget(self, more: int) -> None:
        """Another cache: what is on its way to the one before is for those who wait for it."""
        with self._lock:
            self._afresh += more
            self.cache = self._new_cache()

    def _new_cache(self) -> ReadCache:
        folder = None if self._afresh else self._cache_folder
        return ReadCache(self.bucket, self._cache_bytes, folder)

    def create(self, path: str, buffers: Sequence[Bytes]) -> Put:
        """Create an object if its name is free.

        Where the bucket is known to answer no such uploads, the name is looked up and written
        then: several may do so at once, so whoever must be the only one looks again a moment later.
        """
        if self.conditional:
            return self.bucket.put_if_absent(path, buffers)
        if self.exists(path):
            return Put.TAKEN
        self.bucket.put(path, buffers)
        return Put.CREATED

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        """Create an object whole or not at all; False when the name is taken by other bytes."""
        body = joined_bytes(buffers)
        for attempt in range(_ATTEMPTS):
            if self.create(path, [body]) is Put.CREATED:
                return True
            try:
                return self.read(path) == body  # whoever wrote it, it says what it should
            except FileNotFoundError:
                self._environment.sleep(_PAUSE * 2**attempt)
        raise OSError(f"{path} can't be created: neither there nor accepted by the store")

    def stage(self, path: str, buffers: Iterable[Bytes], *, sync: bool) -> None:
        """Write an object under a name nobody else uses and nobody reads before a commit does."""
        self.bucket.put(path, buffers)

    def open_lock(self, path: str, *, seconds: float | None = None) -> Lease:
        """A lock among hosts: a lease that ends some seconds after its holder died."""
        create, read_only = self.create, self.read_only
        lease = Lease(self.bucket, path, self._environment, read_only=read_only, create=create)
        lease.seconds = seconds or lease.seconds
        return lease

    def foreign_file(self) -> None:
        """None: nobody takes a prefix for a folder."""

    def bucket_facts(self) -> BucketFacts:
        """What racing for names shows: whether several writers can share the bucket."""
        proof = probe(self.bucket, self._environment, self.races)
        self.conditional = proof.conditional
        return BucketFacts(proof.reason, proof.conditional, tuple(map(astuple, proof.races)))

    def remove(self, *paths: str) -> None:
        """Delete objects; nothing happens to missing ones."""
        self.bucket.delete(*map(self.named, paths))

    def close(self) -> None:
        """Give back connections and what was cached."""
        self.cache.close()
        self.bucket.close()
