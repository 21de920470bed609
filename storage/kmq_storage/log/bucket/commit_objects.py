"""Commits in a bucket: one object per commit, which holds its frame and is named by its LSN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.format.entries import Entry, decode_entries
from kmq_storage.format.frame import (
    FrameHeader,
    InvalidFrameError,
    chain_of,
    decode_header,
    proven_directory,
)
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.framing import Framed, Stamp
from kmq_storage.log.proven_reads import proven
from kmq_storage.objects.bucket import Put, joined_bytes
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import FoundFile

#: The predecessor that a repair's commit names when it follows commits that can't be read.
BEHIND_LOST = 0


@dataclass(frozen=True, slots=True)
class CommitObject:
    """A commit whose header and directory are verified, but not yet its batches."""

    header: FrameHeader
    directory: bytes

    @property
    def end(self) -> Cursor:
        """The place after this commit."""
        return Cursor(self.header.lsn, self.header.chain, self.header.time)

    def entries(self) -> list[Entry]:
        """The entries of the commit."""
        return list(decode_entries(self.directory))


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A commit that is to be created as the next one."""

    after: Cursor
    stamp: Stamp
    framed: Framed

    @property
    def end(self) -> Cursor:
        """The place after this commit."""
        return Cursor(self.after.lsn + 1, chain_of(self.stamp.nonce), self.stamp.time)

    @property
    def length(self) -> int:
        """The length of the commit's frame in bytes."""
        return self.framed.placed.length


def follows(header: FrameHeader, chain: int | None) -> bool:
    """Whether a commit follows the one with this chain value; None, an unknown one, matches all.

    A commit that a repair wrote behind unreadable commits follows any of them.
    """
    return chain is None or header.previous in (chain, BEHIND_LOST)


class CommitObjects:
    """Creates and fetches commits; it knows nothing of topics."""

    def __init__(self, files: BucketFiles, seed: int) -> None:
        self._files = files
        self._seed = seed

    def create(self, commit: NewCommit) -> Put:
        """Try to create the commit of this LSN; any result but CREATED leaves it open."""
        name = paths.commit_object(commit.end.lsn)
        body = joined_bytes(commit.framed.frame(commit.after, commit.stamp, self._seed))
        outcome = self._put(name, body)
        if outcome is Put.CREATED:
            self._files.cache.add_whole(name, pa.py_buffer(body))
        return outcome

    def _put(self, name: str, body: bytes) -> Put:
        if self._files.conditional:
            return self._files.bucket.put_if_absent(name, [body])
        # The only writer knows that the name is free.
        self._files.bucket.put(name, [body])
        return Put.CREATED

    def fetch(self, lsn: int) -> CommitObject | None:
        """The commit with this LSN, or None; InvalidFrameError when its object is damaged."""
        file = paths.log_file(lsn)
        try:
            return proven(self._files, file, lambda: self._fetch(file, lsn))
        except FileNotFoundError:
            return None

    def _fetch(self, file: str, lsn: int) -> CommitObject:
        contents = self._files.map(file)
        header = proven_header(contents, lsn, self._seed)
        return CommitObject(header, proven_directory(contents, 0, header))

    def exists(self, lsn: int) -> bool:
        """Whether the object of this LSN exists; it is cached for `fetch`."""
        try:
            self._files.map(paths.log_file(lsn))
        except FileNotFoundError:
            return False
        return True

    def is_followed(self, commit: NewCommit) -> bool:
        """Whether the next commit exists and follows this one, so that its writer has read it."""
        with suppress(InvalidFrameError):
            found = self.fetch(commit.end.lsn + 1)
            return found is not None and found.header.previous == commit.end.chain
        return False

    def written_at(self, commit: NewCommit) -> int | None:
        """When a commit was created, by the store's clock; None when it no longer exists."""
        lsn = commit.end.lsn
        self._files.forget(paths.log_file(lsn))  # it was cached at its upload
        with suppress(InvalidFrameError, FileNotFoundError):
            found = self.fetch(lsn)
            if found is not None and found.header.nonce == commit.stamp.nonce:
                return self._files.bucket.modified(paths.commit_object(lsn))
        return None

    def block(self, lsn: int) -> None:
        """Occupy the name of a lost commit by an invalid object, so that no writer uses it.

        If the commit exists after all, it stays, also in a bucket without conditional uploads.
        """
        self._files.create(paths.commit_object(lsn), [b"lost"])

    def fetch_ahead(self, first: int, count: int) -> None:
        """Begin to fetch the commits with these LSNs."""
        self._files.prefetch((paths.log_file(lsn), 0, 1) for lsn in range(first, first + count))

    def later_than(self, lsn: int) -> Iterator[int]:
        """The LSNs above this one that the bucket lists; a listing may lag behind."""
        after = paths.commit_object(lsn)
        return _lsns(self._files.bucket.list(paths.LOG_FOLDER, after))

    def delete_up_to(self, lsn: int) -> list[str]:
        """Delete the commits up to this LSN; returns their names."""
        there = _lsns(self._files.walk(paths.LOG_FOLDER))
        names = [paths.commit_object(found) for found in takewhile(lambda n: n <= lsn, there)]
        self._files.remove(*names)
        return names


def proven_header(contents: pa.Buffer, lsn: int, seed: int) -> FrameHeader:
    """The header of the object of this LSN; InvalidFrameError when it is another commit's."""
    header = decode_header(contents, 0, seed)
    if header.lsn != lsn or header.length != contents.size:
        raise InvalidFrameError("the object holds another commit than its name says")
    return header


def _lsns(found: Iterator[FoundFile]) -> Iterator[int]:
    lsns = (paths.try_commit_lsn(each.path) for each in found)
    return (lsn for lsn in lsns if lsn is not None)
