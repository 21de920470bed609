"""What is left of a log of which no checkpoint can be read: where it begins, and its commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kmq_storage.environment import SYSTEM
from kmq_storage.format.entries import Entry
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.format.identity import Identity
from kmq_storage.log.collected import collected_lsn
from kmq_storage.log.hint import open_hint
from kmq_storage.log.journal import Journal
from kmq_storage.log.open import bucket_files, is_disk
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.files import Files

if TYPE_CHECKING:
    from kmq_storage.log.commit_objects import CommitObjects
    from kmq_storage.objects.bucket_files import BucketFiles


@dataclass(frozen=True, slots=True)
class Remains:
    """The commits that can be read, behind the last one that is gone."""

    before: int
    entries: Iterator[Entry]


def remains_of(files: Files, identity: Identity, known: int) -> Remains:
    """What is left of a log; where that is nothing, those who wrote files knew it up to `known`.

    Then there was more, and the log has damage behind that.
    """
    if is_disk(files):
        return _of_disk(files, identity, known)
    return _of_bucket(bucket_files(files), identity, known)


def _of_disk(files: Disk, identity: Identity, known: int) -> Remains:
    hint = open_hint(files, identity.seed, SYSTEM)
    journal = Journal(files, identity, hint)
    before = journal.folder.first_lsn() - 1
    if not journal.folder.sizes():
        before = known + 1
        hint.rebuild(before + 1)
    return Remains(before, _of_frames(journal, before + 1))


def _of_frames(journal: Journal, first: int) -> Iterator[Entry]:
    cursor = journal.start_of(first)
    while True:
        try:
            frame = journal.next_frame(cursor)
        except InvalidFrameError:
            frame = None
        if frame is None:
            found = journal.try_resync(cursor)
            if found is None:
                return
            frame = found[1]
        yield from frame.entries()
        cursor = frame.end


def _of_bucket(files: BucketFiles, identity: Identity, known: int) -> Remains:
    from kmq_storage.log.commit_objects import CommitObjects  # buckets are imported late

    objects = CommitObjects(files, identity.seed)
    collected = collected_lsn(files)
    lsns = list(objects.later_than(collected))
    if lsns:
        return Remains(lsns[0] - 1, _of_objects(objects, lsns))
    before = max(collected, known + 1)
    objects.block(before + 1)
    return Remains(before, iter(()))


def _of_objects(objects: CommitObjects, lsns: list[int]) -> Iterator[Entry]:
    for lsn in lsns:
        with suppress(InvalidFrameError):
            found = objects.fetch(lsn)
            yield from () if found is None else found.entries()
