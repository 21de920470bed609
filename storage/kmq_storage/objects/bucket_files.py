"""The files of a store in a bucket, where each file is an object that is written only once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple
from functools import partial
from itertools import chain

import pyarrow as pa

from kmq_storage import limits, paths
from kmq_storage.environment import SYSTEM, Environment
from kmq_storage.format.identity import BucketFacts
from kmq_storage.objects.begun import begun
from kmq_storage.objects.branch_bucket import BranchBucket
from kmq_storage.objects.bucket import Bucket, Put, joined_bytes, prefix_of
from kmq_storage.objects.cache_folder import CacheFolder
from kmq_storage.objects.files import Bytes, FoundFile, none_after_an_error, stage_each
from kmq_storage.objects.lease import Lease, store_time
from kmq_storage.objects.probe import RACES, Race, probe
from kmq_storage.objects.read_cache import ReadCache, RemoteContents

#: The size of a reader's cache, unless storage_options set another one.
CACHE_BYTES = 64 * 1024 * 1024

#: Folders whose files are read in parts.
_SLICED = tuple(
    f"{folder}/" for folder in (paths.LOG_FOLDER, paths.STAGED_FOLDER, paths.SEGMENT_FOLDER)
)

_ATTEMPTS = 5
_PAUSE = 0.1


class BucketFiles:
    """The `Files` of one store in a bucket."""

    #: The most small files that are uploaded at once.
    uploads = 8

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
        #: The races by which `bucket_facts` probes the bucket.
        self.races = races
        #: Whether the bucket supports conditional uploads: see `create`.
        self.conditional = True

    @property
    def prefix(self) -> str:
        """The prefix of the store inside its bucket."""
        return prefix_of(self.url)

    def beside(self, prefix: str) -> BucketFiles:
        """The files of another store in the same bucket, read-only."""
        return BucketFiles(
            self.bucket.beside(prefix),
            read_only=True,
            cache_bytes=0,
            environment=self._environment,
        )

    def with_origins(self, prefixes: Iterable[str]) -> BucketFiles:
        """These files, together with the shared files of the stores at these prefixes."""
        origins = [self.bucket.beside(prefix) for prefix in prefixes]
        files = BucketFiles(
            BranchBucket(self.bucket, origins),
            read_only=self.read_only,
            cache_bytes=self._cache_bytes,
            cache_folder=self._cache_folder,
            environment=self._environment,
            races=self.races,
        )
        files.conditional, files.uploads = self.conditional, self.uploads
        return files

    def named(self, path: str) -> str:
        """See `Files.named`."""
        return paths.in_bucket(path)

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        try:
            self.bucket.modified(path)
        except FileNotFoundError:
            return False
        return True

    def list(self, folder: str) -> list[str]:
        """See `Files.list`."""
        names = (found.path.removeprefix(f"{folder}/") for found in self.bucket.list(folder))
        return sorted(name for name in names if "/" not in name)

    def walk(self, folder: str) -> Iterator[FoundFile]:
        """See `Files.walk`."""
        return self.bucket.list(folder)

    def walk_shared(self, folder: str) -> Iterator[FoundFile]:
        """See `Files.walk_shared`."""
        origins = self.bucket.origins if isinstance(self.bucket, BranchBucket) else ()
        return chain.from_iterable(bucket.list(folder) for bucket in origins)

    def now(self) -> int:
        """See `Files.now`; the date of a new object tells."""
        return store_time(self.bucket, paths.CLOCK_FOLDER, self._environment)

    def read(self, path: str) -> bytes:
        """See `Files.read`; it does not use the cache."""
        whole: bytes = self.bucket.get(path).data.to_pybytes()
        return whole

    def map(self, path: str, first: tuple[int, int] = (0, 0)) -> pa.Buffer | RemoteContents:
        """See `Files.map`; files with records are fetched in parts, others whole."""
        name = self.named(path)
        contents = self.cache.contents(name, first)
        return contents if name.startswith(_SLICED) else contents.slice()

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> bool:
        """See `Files.prefetch`."""
        for path, position, length in places:
            self.cache.fetch_ahead(self.named(path), position, length)
        return True

    @contextmanager
    def afresh(self) -> Iterator[None]:
        """See `Files.afresh`; it holds for all threads, and also bypasses the cache folder."""
        self._forget(1)
        try:
            yield
        finally:
            self._forget(-1)

    def forget(self, path: str) -> bool:
        """See `Files.forget`."""
        self.cache.forget(self.named(path))
        return True

    def _forget(self, more: int) -> None:
        """Begin with an empty cache; threads that wait for the old one still get its parts."""
        with self._lock:
            self._afresh += more
            self.cache = self._new_cache()

    def _new_cache(self) -> ReadCache:
        folder = None if self._afresh else self._cache_folder
        return ReadCache(self.bucket, self._cache_bytes, folder)

    def create(self, path: str, buffers: Sequence[Bytes]) -> Put:
        """Create an object if its name is free.

        If the bucket has no conditional uploads, the name is looked up and then written. Several
        processes may do so at once, so a caller that must be the only one looks again later.
        """
        if self.conditional:
            return self.bucket.put_if_absent(path, buffers)
        if self.exists(path):
            return Put.TAKEN
        self.bucket.put(path, buffers)
        return Put.CREATED

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        """See `Files.publish`; also True when the object exists with the same bytes."""
        body = joined_bytes(buffers)
        for attempt in range(_ATTEMPTS):
            if self.create(path, [body]) is Put.CREATED:
                return True
            try:
                return self.read(path) == body  # whichever process wrote it
            except FileNotFoundError:
                self._environment.sleep(_PAUSE * 2**attempt)
        raise OSError(f"{path} can't be created: neither there nor accepted by the store")

    def stage(self, path: str, buffers: Iterable[Bytes], *, sync: bool) -> None:
        """See `Files.stage`."""
        self.bucket.put(path, buffers)

    def stage_together(self, files: Sequence[tuple[str, Iterable[Bytes]]]) -> None:
        """See `Files.stage_together`; several are uploaded at once."""
        uploads = min(self.uploads, len(files))
        if uploads <= 1:
            stage_each(self, files)
            return
        pool = ThreadPoolExecutor(uploads, "kmq-stage")
        with none_after_an_error(self, [path for path, _ in files]), pool:
            bodies = ((path, joined_bytes(buffers)) for path, buffers in files)
            puts = [begun(pool, partial(self.bucket.put, path, [body])) for path, body in bodies]
            for put in puts:
                put.result()

    def open_lock(self, path: str, *, seconds: float | None = None) -> Lease:
        """A lock among hosts: a lease, which ends some seconds after its holder died."""
        return Lease(
            self.bucket,
            path,
            self._environment,
            read_only=self.read_only,
            seconds=seconds or limits.LEASE_SECONDS,
            create=self.create,
        )

    def foreign_file(self) -> None:
        """None: a prefix in a bucket is not checked for another use."""

    def bucket_facts(self) -> BucketFacts:
        """Probe by races whether several writers can share the bucket."""
        proof = probe(self.bucket, self._environment, self.races)
        self.conditional = proof.conditional
        return BucketFacts(proof.reason, proof.conditional, tuple(map(astuple, proof.races)))

    def remove(self, *paths: str) -> None:
        """See `Files.remove`."""
        self.bucket.delete(*map(self.named, paths))

    def close(self) -> None:
        """Release connections and the cache."""
        self.cache.close()
        self.bucket.close()
