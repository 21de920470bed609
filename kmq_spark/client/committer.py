"""One commit of everything that waits: encode, append, sync, tell.

A refused send (unknown topic, full topic, bad partition) fails alone; the rest is committed.
Each commit carries the producer's sequence, so a retry after an unknown outcome lands once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice

from kmq_spark.client.routing import Router
from kmq_spark.client.sends import Sends
from kmq_spark.client.work import Work, work_of
from kmq_spark.errors import CommitOutcomeUnknownError, KmqError, UnavailableError
from kmq_storage import limits
from kmq_storage.format.entries import ProducerEntry, RecordsEntry
from kmq_storage.log.binding import DuplicateCommitError, RefusedError, Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.staging import Placed, Stager
from kmq_storage.log.state import StoreState
from kmq_storage.model import Commit

_LOGGER = logging.getLogger(__name__)

_ATTEMPTS = 3


class Committer:
    """Commits sends for one producer identity; one thread at a time."""

    def __init__(
        self, log: CommitLog, router: Router, *, name: str, epoch: int, durable: bool
    ) -> None:
        self._log = log
        self._router = router
        self._name = name
        self._epoch = epoch
        self._durable = durable
        self._sequence = 0
        self._stager = Stager(log.disk, log.environment.new_uuid, sync=durable)

    def commit(self, sends: Sequence[Sends]) -> None:
        """Commit all sends, or let those that can't be stored fail; every one is finished after."""
        try:
            self._commit(sends)
        except KmqError as error:
            _fail(sends, error)
        except OSError as error:
            _fail(sends, UnavailableError(f"store {self._log.disk.url}: {error}"))
        except Exception as error:
            _LOGGER.exception("commit of %d sends failed", len(sends))
            _fail(sends, KmqError(f"sends failed unexpectedly: {error!r}"))
        finally:
            self._sequence += 1
            for send in sends:
                send.finish()

    def _commit(self, waiting: Sequence[Sends]) -> None:
        """Try until a commit of all that can be stored is written and as durable as asked for."""
        units = self._encode_all(work_of(waiting), {})
        while units:
            try:
                commit = self._append(list(units.values()))
            except RefusedError as refused:
                work = list(units)[refused.unit]
                del units[work]
                units = self._encode_all(work.refuse(refused.cause), units)
            else:
                _tell_places(units, commit)
                return

    def _encode_all(self, waiting: Sequence[Work], done: dict[Work, Unit]) -> dict[Work, Unit]:
        state = self._log.written_state()
        room = limits.INLINE_COMMIT_BYTES_MAX - sum(map(_inline_bytes, done.values()))
        for work in waiting:
            try:
                unit = self._encode(work, state, room)
            except KmqError as error:
                work.fail(error)
                continue
            if unit.entries:
                done[work] = unit
                room -= _inline_bytes(unit)
        return done

    def _encode(self, work: Work, state: StoreState, room: int) -> Unit:
        topic = state.topic(work.topic)
        placed: list[Placed] = []
        for records in work.encode(topic, self._router, self._log.environment.now_us()):
            placed.append(self._stager.place(records, room=room))
            room -= sum(body.size for body in placed[-1].bodies)
        return Unit(
            tuple(entry for each in placed for entry in each.entries),
            tuple(body for each in placed for body in each.bodies),
            synced=self._durable,
        )

    def _append(self, units: list[Unit]) -> Commit:
        """Write the commit once, however often its outcome was unknown."""
        identity = Unit((ProducerEntry(self._name, self._epoch, self._sequence),))
        for attempt in range(_ATTEMPTS):
            try:
                commit = self._log.append([*units, identity])
            except DuplicateCommitError as duplicate:
                commit = next(self._log.written_commits(duplicate.lsn))
            try:
                if self._durable:
                    self._log.sync(commit.lsn)
                return commit
            except CommitOutcomeUnknownError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("every attempt returns or raises")


def _fail(sends: Sequence[Sends], error: KmqError) -> None:
    for send in sends:
        send.failure = send.failure or error


def _inline_bytes(unit: Unit) -> int:
    return sum(body.size for body in unit.bodies)


def _tell_places(units: dict[Work, Unit], commit: Commit) -> None:
    """Hand each work the first offset it got per partition.

    The entries of a commit stand in the order of its units, and the rows that one unit has
    for a partition are contiguous.
    """
    entries = iter(entry for entry in commit.entries if isinstance(entry, RecordsEntry))
    for work, unit in units.items():
        first_offsets: dict[int, int] = {}
        for entry in islice(entries, len(unit.entries)):
            first_offsets.setdefault(entry.partition, entry.base_offset)
        work.committed(first_offsets)
