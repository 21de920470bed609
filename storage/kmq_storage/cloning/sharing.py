"""Sharing files between a store and its clone without copying them: by links or by reference."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol
from urllib.parse import urlsplit

from kmq_storage import limits, paths
from kmq_storage.errors import CorruptionError, InvalidRequestError, UnavailableError
from kmq_storage.format.identity import Identity
from kmq_storage.log.bucket.collected import mark_collected
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.clones import CloneRecord, encode_clone
from kmq_storage.maintenance.pins import pinned
from kmq_storage.objects.branch_bucket import BranchBucket
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.disk import Disk

_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class Sharing(Protocol):
    """The steps of making a clone that differ by place, in the order of their calls."""

    #: The prefixes of other stores with shared files, for the clone's identity.
    origins: tuple[str, ...]

    def begin(self) -> None:
        """Mark the place of the clone; InvalidRequestError when no clone can be made there."""

    def keeping(self) -> AbstractContextManager[None]:
        """A block in which the source keeps its files, while the clone is made."""

    def share(self, files: Iterable[str]) -> None:
        """Share these files of the source."""

    def start_log(self, identity: Identity, lsn: int) -> None:
        """Begin a log behind commit `lsn`."""

    def register(self, clone: Identity, lsn: int, file_ids: tuple[bytes, ...]) -> None:
        """Make the source keep these files as long as the clone exists."""


def sharing_of(source: CommitLog, target: Disk | BucketFiles) -> Sharing:
    """The way of sharing for two places; InvalidRequestError if they can't share files."""
    place = source.files
    if isinstance(target, BucketFiles):
        if isinstance(place, BucketFiles) and urlsplit(target.url)[:2] == urlsplit(place.url)[:2]:
            return Registration(source, place, target)
    elif not isinstance(place, BucketFiles):
        return Links(source, target)
    raise _too_far(source, target)


class Links:
    """Sharing on a disk: each file gets a hard link, and the stores are independent."""

    origins: tuple[str, ...] = ()

    def __init__(self, source: CommitLog, target: Disk) -> None:
        self._source = source
        self._target = target

    def begin(self) -> None:
        """Link the source's kmq.json, which also shows whether links are possible."""
        try:
            self._target.link(paths.CLONING_FILE, self._source.files, paths.STORE_FILE)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise _too_far(self._source, self._target) from error
            raise
        self._target.sync_names("")

    def keeping(self) -> AbstractContextManager[None]:
        """A block without effect: linked files stay, and files that moved are looked up again."""
        return nullcontext()

    def share(self, files: Iterable[str]) -> None:
        """Link each file, and sync the names."""
        files = list(files)
        folders = {file.rpartition("/")[0] for file in files}
        self._target.make_folders(*folders)
        for file in files:
            try:
                self._target.link(file, self._source.files, file)
            except FileNotFoundError as error:
                raise CorruptionError(
                    f"{file} of store {self._source.files.url} is missing, and a clone would share "
                    "it: put it back from a copy, or give its records up by "
                    "`kmq repair --drop-damaged`, and clone once more",
                    file=file,
                    missing=True,
                ) from error
        for folder in folders:
            self._target.sync_names(folder)

    def start_log(self, identity: Identity, lsn: int) -> None:
        """Create the first log file."""
        self._target.open_log(paths.log_file(lsn + 1), identity.log_file_bytes, create=True)

    def register(self, clone: Identity, lsn: int, file_ids: tuple[bytes, ...]) -> None:
        """Do nothing: a file exists until its last link is removed."""


class Registration:
    """Sharing in a bucket: files stay where they are, and their stores keep them for the clone."""

    def __init__(self, log: CommitLog, source: BucketFiles, target: BucketFiles) -> None:
        self._log = log
        self._source = source
        self._target = target
        target.conditional = source.conditional
        self._began = 0
        self.origins = (source.prefix, *log.identity.origins)

    def begin(self) -> None:
        """Copy the source's kmq.json."""
        raw = self._source.read(paths.STORE_FILE)
        self._target.publish(paths.CLONING_FILE, [raw], sync=True)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Pin the current files of the source."""
        self._began = self._source.now()
        with pinned(self._log, self._log.refresh().lsn, limits.ORPHAN_AGE):
            yield

    def share(self, files: Iterable[str]) -> None:
        """Do nothing: the clone's identity tells where the files are."""

    def start_log(self, identity: Identity, lsn: int) -> None:
        """Mark the commits up to this one as collected."""
        mark_collected(self._target, lsn)

    def register(self, clone: Identity, lsn: int, file_ids: tuple[bytes, ...]) -> None:
        """Write a record into every store that has some of the files.

        UnavailableError when cloning took so long that the pin may end before the clone exists.
        """
        record = CloneRecord(clone.store_id, self._target.prefix, lsn, file_ids)
        name, contents = encode_clone(record)
        bucket = self._source.bucket
        origins = bucket.origins if isinstance(bucket, BranchBucket) else ()
        for each in (bucket, *origins):
            each.put(name, [contents])
        if self._source.now() - self._began > limits.ORPHAN_AGE * 1e6 / 2:
            raise UnavailableError(
                f"cloning {self._source.url} took so long that files may have been collected; "
                "there is no clone, try again",
                url=self._target.url,
            )


def _too_far(source: CommitLog, target: Disk | BucketFiles) -> InvalidRequestError:
    return InvalidRequestError(
        f"store {source.files.url} can't be cloned to {target.url}: a clone shares files, so it is "
        "on the same file system (one with hard links, by the owner of the files) or in the same "
        "bucket; use `kmq copy`",
        source=source.files.url,
        target=target.url,
    )
