"""Combining commits: threads of one handle that commit at the same time share one upload.

While one thread uploads, the others wait. The next one then writes the units of all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kmq_storage.format.entries import GroupOffsetsEntry, ProducerEntry, RecordsEntry
from kmq_storage.format.schedule_entry import ScheduleEntry
from kmq_storage.log.binding.binding import DuplicateCommitError, RefusedError, Unit
from kmq_storage.log.commit_log import WrittenCommit

#: About the most bytes that an entry takes in a commit's directory.
_ENTRY_BYTES = 512


@dataclass(slots=True, eq=False)
class _Request:
    """Units that one thread wants to commit, and the result."""

    units: Sequence[Unit]
    #: Producers and groups, each of which can be in a commit only once, because binding compares
    #: them with the state before it.
    parties: frozenset[tuple[type, str]]
    commit: WrittenCommit | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.commit is not None or self.error is not None

    @property
    def size(self) -> int:
        bodies: int = sum(body.size for unit in self.units for body in unit.bodies)
        return bodies + _ENTRY_BYTES * self.entries

    @property
    def entries(self) -> int:
        return sum(len(unit.entries) for unit in self.units)

    def result(self) -> WrittenCommit:
        if self.error is not None:
            raise self.error
        assert self.commit is not None, "written or failed"
        return self.commit


class Combining:
    """Calls `write` in one thread at a time, with the units of all waiting threads."""

    def __init__(self, write: Callable[[Sequence[Unit]], WrittenCommit], *, bytes_max: int) -> None:
        self._write = write
        self._bytes_max = bytes_max
        self._writing = threading.Lock()
        #: Held while `_waiting` changes.
        self._gathering = threading.Lock()
        self._waiting: list[_Request] = []

    def append(self, units: Sequence[Unit]) -> WrittenCommit:
        """Write these units, perhaps with those of other threads; the commit shows only these."""
        if not (self._waiting or self._writing.locked()):  # no other thread to share it with
            with self._writing:
                return self._write(units)
        parties = _parties(units)
        if not parties:
            with self._writing:
                return self._write(units)
        request = _Request(units, parties)
        with self._gathering:
            self._waiting.append(request)
        try:
            with self._writing:
                if not request.is_done:
                    self._write_together(self._take(request))
        finally:  # a signal may have interrupted the waiting
            self._give_up(request)
        return request.result()

    def _take(self, own: _Request) -> list[_Request]:
        """This request and the waiting ones that fit into the same commit."""
        taken, size, parties = [own], own.size, own.parties
        with self._gathering:
            for each in self._waiting:
                fits = size + each.size <= self._bytes_max
                if each is not own and fits and not parties & each.parties:
                    taken.append(each)
                    size, parties = size + each.size, parties | each.parties
            self._waiting = [each for each in self._waiting if each not in taken]
        return taken

    def _give_up(self, request: _Request) -> None:
        with self._gathering:
            self._waiting = [each for each in self._waiting if each is not request]

    def _write_together(self, requests: Sequence[_Request]) -> None:
        """Write all requests except those that are refused.

        When this thread is interrupted, the threads of unfinished requests try again themselves.
        This is safe: if a request was stored, its producer's sequence or its offsets tell.
        """
        left, others = list(requests), requests[1:]
        try:
            while left:
                left = self._tried(left)
        finally:
            with self._gathering:
                self._waiting += [each for each in others if not each.is_done]

    def _tried(self, requests: list[_Request]) -> list[_Request]:
        """Try to write requests; returns those left to write, without one that was refused."""
        try:
            commit = self._write([unit for request in requests for unit in request.units])
        except (RefusedError, DuplicateCommitError) as refused:
            owner, unit = _owner(requests, refused.unit)
            owner.error = _of_unit(refused, unit)
            return [request for request in requests if request is not owner]
        except Exception as error:
            for request in requests:
                request.error = error
            return []
        first = 0
        for request in requests:
            end = first + request.entries
            request.commit = replace(commit, entries=commit.entries[first:end])
            first = end
        return []


def _parties(units: Sequence[Unit]) -> frozenset[tuple[type, str]]:
    """The producers and groups that commit; empty for units that must not share a commit.

    Records can share one only if their producer's sequence follows them, so that a retry can find
    its own.
    """
    found: list[tuple[type, str]] = []
    own_records = False
    for entry in (entry for unit in units for entry in unit.entries):
        match entry:
            case RecordsEntry() | ScheduleEntry():
                own_records = True
            case ProducerEntry():
                own_records = False
                found.append((ProducerEntry, entry.producer))
            case GroupOffsetsEntry():
                found.append((GroupOffsetsEntry, entry.group))
            case _:
                return frozenset()
    return frozenset() if own_records else frozenset(found)


def _owner(requests: Sequence[_Request], unit: int) -> tuple[_Request, int]:
    """The request that has the commit's unit with this number, and the number within it."""
    for request in requests:
        if unit < len(request.units):
            return request, unit
        unit -= len(request.units)
    raise AssertionError("a unit of the commit")


def _of_unit(refused: RefusedError | DuplicateCommitError, unit: int) -> Exception:
    if isinstance(refused, RefusedError):
        return RefusedError(unit, refused.cause)
    return DuplicateCommitError(refused.lsn, unit)
