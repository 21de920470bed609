"""The bucket of a clone: its own prefix, and behind it the prefixes of stores with shared files.

Staged files and segments have globally unique names, so a file with the right name under any prefix
is the right file. All other files, and all changes, belong to the own prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from kmq_storage import paths
from kmq_storage.objects.bucket import Bucket, Fetched, Put
from kmq_storage.objects.files import Bytes, FoundFile

SHARED_FOLDERS = (paths.STAGED_FOLDER, paths.SEGMENT_FOLDER)
_SHARED = tuple(f"{folder}/" for folder in SHARED_FOLDERS)

#: For how many names the prefix is remembered; then all are forgotten.
_REMEMBERED = 10_000

T = TypeVar("T")


class BranchBucket:
    """A prefix, with the shared files of other prefixes."""

    def __init__(self, own: Bucket, origins: Sequence[Bucket]) -> None:
        self.url = own.url
        self.origins = tuple(origins)
        self._own = own
        self._found: dict[str, Bucket] = {}

    def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
        """See `Bucket.get`; shared files are found under other prefixes, too."""
        return self._ask(name, lambda bucket: bucket.get(name, start, length))

    def modified(self, name: str) -> int:
        """See `Bucket.modified`; shared files are found under other prefixes, too."""
        return self._ask(name, lambda bucket: bucket.modified(name))

    def _ask(self, name: str, ask: Callable[[Bucket], T]) -> T:
        if not name.startswith(_SHARED):
            return ask(self._own)
        for bucket in self._places(name):
            with suppress(FileNotFoundError):
                answer = ask(bucket)
                self._remember(name, bucket)
                return answer
        raise FileNotFoundError(name)

    def _places(self, name: str) -> Sequence[Bucket]:
        known = self._found.get(name)
        return (self._own, *self.origins) if known is None else (known,)

    def _remember(self, name: str, bucket: Bucket) -> None:
        if len(self._found) >= _REMEMBERED:
            self._found.clear()
        self._found[name] = bucket

    def put(self, name: str, buffers: Iterable[Bytes]) -> None:
        """Write an object of the own prefix."""
        self._own.put(name, buffers)

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        """Create an object of the own prefix if its name is free there."""
        return self._own.put_if_absent(name, buffers)

    def list(self, folder: str, after: str = "") -> Iterator[FoundFile]:
        """The objects of the own prefix below a folder by name."""
        return self._own.list(folder, after)

    def delete(self, *names: str) -> None:
        """Delete objects of the own prefix."""
        self._own.delete(*names)

    def beside(self, prefix: str) -> Bucket:
        """The same bucket at another prefix."""
        return self._own.beside(prefix)

    def close(self) -> None:
        """Release connections."""
        for bucket in (self._own, *self.origins):
            bucket.close()
