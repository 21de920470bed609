"""The commits of a store in a bucket, as objects: one frame each, named by its LSN."""

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
from kmq_storage.log.framing import Framed, Stamp
from kmq_storage.log.journal import Cursor
from kmq_storage.log.proven_reads import proven
from kmq_storage.objects.bucket import Put, joined_bytes
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import FoundFile

#: What a commit names as its predecessor that follows commits which can't be read.
BEHIND_LOST = 0


@dataclass(frozen=True, slots=True)
class CommitObject:
    """A commit whose header and directory are proven; its batches may be not."""

    header: FrameHeader
    directory: bytes

    @property
    def end(self) -> Cursor:
        """The place after this commit."""
        return Cursor(self.header.lsn, self.header.chain, self.header.time)

    def entries(self) -> list[Entry]:
        """What the commit changes."""
        return list(decode_entries(self.directory))


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A commit that is to become the next one."""

    after: Cursor
    stamp: Stamp
    framed: Framed

    @property
    def end(self) -> Cursor:
        """The place after this commit."""
        return Cursor(self.after.lsn + 1, chain_of(self.stamp.nonce), self.stamp.time)

    @property
    def length(self) -> int:
        """Bytes of its frame."""
        return self.framed.placed.length


def follows(header: FrameHeader, chain: int | None) -> bool:
    """Whether a commit goes on behind the one with this chain; None when that isn't known.

    One that a repair wrote behind commits which can't be read goes on behind whatever they were.
    """
    return chain is None or header.previous in (chain, BEHIND_LOST)


class CommitObjects:
    """Creates and fetches commits; knows nothing of topics."""

    def __init__(self, files: BucketFiles, seed: int) -> None:
        self._files = files
        self._seed = seed

    def create(self, commit: NewCommit) -> Put:
        """Try to be the commit of this LSN; any answer but CREATED proves nothing."""
        name = paths.commit_object(commit.end.lsn)
        body = joined_bytes(commit.framed.frame(commit.after, commit.stamp, self._seed))
        outcome = self._put(name, body)
        if outcome is Put.CREATED:
            self._files.cache.add_whole(name, pa.py_buffer(body))
        return outcome

    def _put(self, name: str, body: bytes) -> Put:
        if self._files.conditional:
            return self._files.bucket.put_if_absent(name, [body])
        # There is one writer, which knows that the name is free.
        self._files.bucket.put(name, [body])
        return Put.CREATED

    def fetch(self, lsn: int) -> CommitObject | None:
        """The commit with this LSN, or None when there is none.

        InvalidFrameError when the object is not that commit.
        """
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
        """Whether there is an object with this name; it is kept for `fetch`."""
        try:
            self._files.map(paths.log_file(lsn))
        except FileNotFoundError:
            return False
        return True

    def is_followed(self, commit: NewCommit) -> bool:
        """Whether the next commit is there and follows this one, so that its writer read it."""
        with suppress(InvalidFrameError):
            found = self.fetch(commit.end.lsn + 1)
            return found is not None and found.header.previous == commit.end.chain
        return False

    def written_at(self, commit: NewCommit) -> int | None:
        """When a commit was created, by the store's clock; None when it isn't there any more."""
        lsn = commit.end.lsn
        self._files.forget(paths.log_file(lsn))  # it is kept since its upload
        with suppress(InvalidFrameError, FileNotFoundError):
            found = self.fetch(lsn)
            if found is not None and found.header.nonce == commit.stamp.nonce:
                return self._files.bucket.modified(paths.commit_object(lsn))
        return None

    def block(self, lsn: int) -> None:
        """Have something at the name of a lost commit that is none: nobody takes it any more.

        A commit that is there after all stays, also where a name is not created but written.
        """
        self._files.create(paths.commit_object(lsn), [b"lost"])

    def fetch_ahead(self, first: int, count: int) -> None:
        """Begin to fetch the commits with these LSNs."""
        self._files.prefetch((paths.log_file(lsn), 0, 1) for lsn in range(first, first + count))

    def later_than(self, lsn: int) -> Iterator[int]:
        """The LSNs above this one that the bucket lists; a hint."""
        after = paths.commit_object(lsn)
        return _lsns(self._files.bucket.list(paths.LOG_FOLDER, after))

    def delete_up_to(self, lsn: int) -> list[str]:
        """Delete the commits with these LSNs; their names."""
        there = _lsns(self._files.walk(paths.LOG_FOLDER))
        names = [paths.commit_object(found) for found in takewhile(lambda n: n <= lsn, there)]
        self._files.remove(*names)
        return names


def proven_header(contents: pa.Buffer, lsn: int, seed: int) -> FrameHeader:
    """The header of a commit's object; InvalidFrameError when it is another one's."""
    header = decode_header(contents, 0, seed)
    if header.lsn != lsn or header.length != contents.size:
        raise InvalidFrameError("the object holds another commit than its name says")
    return header


def _lsns(found: Iterator[FoundFile]) -> Iterator[int]:
    lsns = (paths.try_commit_lsn(each.path) for each in found)
    return (lsn for lsn in lsns if lsn is not None)
