"""The readable rest of a log without a usable checkpoint: where it begins, and its commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from kmq_storage.environment import SYSTEM
from kmq_storage.format.entries import Entry
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.format.identity import Identity
from kmq_storage.log.bucket.collected import collected_lsn
from kmq_storage.log.bucket.commit_objects import CommitObject, CommitObjects
from kmq_storage.log.files.hint import open_hint
from kmq_storage.log.files.journal import Journal
from kmq_storage.log.open import bucket_files, is_disk
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.files import Files


@dataclass(frozen=True, slots=True)
class LeftCommit:
    """A readable commit and its position."""

    lsn: int
    time: int
    entries: list[Entry]
    file: int
    position: int


@dataclass(frozen=True, slots=True)
class Remains:
    """The readable commits behind the last missing one."""

    #: The LSN of the last missing commit.
    before: int
    entries: Iterator[Entry]
    #: The first of these commits, if they are marked as collected, so that no reader reads them.
    marked: Sequence[LeftCommit] = ()


def commits_left(files: Files, identity: Identity) -> Iterator[LeftCommit]:
    """Every commit that can still be read, also behind damaged ones."""
    if is_disk(files):
        journal = Journal(files, identity, open_hint(files, identity.seed, SYSTEM))
        return _of_frames(journal, journal.folder.first_lsn())
    objects = CommitObjects(bucket_files(files), identity.seed)
    return _of_objects(objects, objects.later_than(collected_lsn(bucket_files(files))))


def _entries_of(commits: Iterable[LeftCommit]) -> Iterator[Entry]:
    return (entry for commit in commits for entry in commit.entries)


def remains_of(files: Files, identity: Identity, known: int, since: int) -> Remains:
    """The rest of a log behind a checkpoint at LSN `since`.

    If nothing is left, the writers of files still knew commits up to LSN `known`. The log is then
    marked as damaged behind these.
    """
    if is_disk(files):
        return _of_disk(files, identity, known)
    return _of_bucket(bucket_files(files), identity, known, since)


def _of_disk(files: Disk, identity: Identity, known: int) -> Remains:
    hint = open_hint(files, identity.seed, SYSTEM)
    journal = Journal(files, identity, hint)
    before = journal.folder.first_lsn() - 1
    if not journal.folder.sizes():
        before = known + 1
        hint.rebuild(before + 1)
    return Remains(before, _entries_of(_of_frames(journal, before + 1)))


def _of_frames(journal: Journal, first: int) -> Iterator[LeftCommit]:
    cursor = journal.start_of(first)
    while True:
        frame, _ = journal.try_next(cursor)
        if frame is None:
            found = journal.try_resync(cursor)
            if found is None:
                return
            frame = found[1]
        header = frame.header
        yield LeftCommit(header.lsn, header.time, frame.entries(), frame.file, frame.position)
        cursor = frame.end


def _of_bucket(files: BucketFiles, identity: Identity, known: int, since: int) -> Remains:
    objects = CommitObjects(files, identity.seed)
    collected = collected_lsn(files)
    lsns = list(objects.later_than(collected))
    if lsns:
        marked = _marked(objects, lsns[0], since)
        entries = _entries_of(chain(marked, _of_objects(objects, lsns)))
        return Remains(lsns[0] - len(marked) - 1, entries, marked)
    before = max(collected, known + 1)
    objects.block(before + 1)
    return Remains(before, iter(()))


def _marked(objects: CommitObjects, first: int, since: int) -> list[LeftCommit]:
    """Commits just before `first` that are marked as collected, but still exist.

    Each must be the predecessor that its successor names. Another object with such a name was
    written by a process that slept, and does not count.
    """
    found: list[LeftCommit] = []
    with suppress(InvalidFrameError):
        behind = objects.fetch(first)
        while behind is not None and behind.header.lsn > since + 1:
            lsn, previous = behind.header.lsn - 1, behind.header.previous
            behind = objects.fetch(lsn) if lsn else None
            if behind is None or behind.header.chain != previous:
                break
            found.append(_left(behind))
    return found[::-1]


def _of_objects(objects: CommitObjects, lsns: Iterable[int]) -> Iterator[LeftCommit]:
    for lsn in lsns:
        with suppress(InvalidFrameError):
            found = objects.fetch(lsn)
            if found is not None:
                yield _left(found)


def _left(found: CommitObject) -> LeftCommit:
    header = found.header
    return LeftCommit(header.lsn, header.time, found.entries(), header.lsn, 0)
