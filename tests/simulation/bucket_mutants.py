"""Planted mistakes in what hosts do with a shared bucket; each must be found."""

from __future__ import annotations

from typing import Any

import pytest

from kmq_storage.log.bucket import bucket_log, follower
from kmq_storage.log.bucket.commit_objects import CommitObjects, NewCommit
from kmq_storage.log.bucket.next_object import NextObject
from kmq_storage.objects.bucket import Put
from tests.simulation.mutants import Mutant, _nothing


def believes_that_what_is_there_is_its_own(patch: pytest.MonkeyPatch) -> None:
    """After a doubtful answer the name is read back, but no nonce compared."""

    def create(log: NextObject, commit: NewCommit) -> bool:
        while log._objects.create(commit) is not Put.CREATED:
            if log.read_back(commit.end.lsn) is not None:
                return True
        return True

    patch.setattr(NextObject, "create", create)


def believes_exists(patch: pytest.MonkeyPatch) -> None:
    """A name that is taken was taken by another writer, though a repeated request says so too."""

    def create(log: NextObject, commit: NewCommit) -> bool:
        while (put := log._objects.create(commit)) is Put.UNKNOWN:
            found = log.read_back(commit.end.lsn)
            if found is not None:
                return found.header.nonce == commit.stamp.nonce
        return put is Put.CREATED

    patch.setattr(NextObject, "create", create)


def takes_no_answer_for_a_no(patch: pytest.MonkeyPatch) -> None:
    """After a timeout nothing is read back: the commit is bound again to the next name."""

    def create(log: NextObject, commit: NewCommit) -> bool:
        return log._objects.create(commit) is Put.CREATED

    patch.setattr(NextObject, "create", create)


def takes_no_answer_for_a_yes(patch: pytest.MonkeyPatch) -> None:
    """After a timeout the commit counts as stored."""

    def create(log: NextObject, commit: NewCommit) -> bool:
        return log._objects.create(commit) is not Put.TAKEN

    patch.setattr(NextObject, "create", create)


def puts_over_what_is_there(patch: pytest.MonkeyPatch) -> None:
    """The commit is written whoever else was first."""

    def put(objects: CommitObjects, name: str, body: bytes) -> Put:
        objects._files.bucket.put(name, [body])
        return Put.CREATED

    patch.setattr(CommitObjects, "_put", put)


def forgets_that_names_are_free_again(patch: pytest.MonkeyPatch) -> None:
    """Who slept while the log was collected reads and commits at an old name."""
    patch.setattr(follower, "is_recent", lambda *_: True)


def acknowledges_a_void_commit(patch: pytest.MonkeyPatch) -> None:
    """A name that was free because its commit was collected counts as won."""
    patch.setattr(NextObject, "_is_void", lambda *_: False)


def takes_what_was_collected_for_void(patch: pytest.MonkeyPatch) -> None:
    """A commit that all had read when its writer heard of it is made a second time."""
    patch.setattr(CommitObjects, "is_followed", lambda *_: False)
    patch.setattr(CommitObjects, "written_at", lambda *_: 1 << 62)


def deletes_without_a_mark(patch: pytest.MonkeyPatch) -> None:
    """Nobody is told that the log begins later."""
    patch.setattr(bucket_log, "mark_collected", _nothing)
    patch.setattr(bucket_log, "deletable_lsn", lambda _: 1 << 62)


def goes_on_where_it_knows_no_better(patch: pytest.MonkeyPatch) -> None:
    """A commit is bound to the state that was known, not to the one that it will follow."""
    original = NextObject._bound

    def bound(log: NextObject, units: Any) -> NewCommit:
        commit = original(log, units)
        first = log.__dict__.setdefault("first_bound", {}).setdefault(id(units), commit)
        return NewCommit(commit.after, commit.stamp, first.framed)

    patch.setattr(NextObject, "_bound", bound)


#: Not among them: what shows in one of a thousand seeds. Tests of collected logs find it.
BUCKET_MUTANTS: tuple[Mutant, ...] = (
    believes_that_what_is_there_is_its_own,
    believes_exists,
    takes_no_answer_for_a_no,
    takes_no_answer_for_a_yes,
    puts_over_what_is_there,
    deletes_without_a_mark,
    goes_on_where_it_knows_no_better,
)
