"""One commit of everything that waits: encode, append, sync, tell.

A refused send (unknown topic, full topic, bad partition) fails alone; the rest is committed.
Each commit carries the producer's sequence, so a retry after an unknown outcome lands once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kmq_spark.client.routing import Router
from kmq_spark.client.sends import Sends
from kmq_spark.errors import CommitOutcomeUnknownError, KmqError, NotFoundError, UnavailableError
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
            self._commit(list(sends))
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

    def _commit(self, waiting: list[Sends]) -> None:
        """Try until a commit of all that can be stored is written and as durable as asked for."""
        units = self._encode_all(waiting, {})
        while units:
            try:
                commit = self._append(list(units.values()))
            except RefusedError as refused:
                send = list(units)[refused.unit]
                units = self._again(send, refused.cause, units)
                continue
            _tell_places(units, commit)
            return

    def _again(
        self, send: Sends, cause: KmqError, units: dict[Sends, Unit]
    ) -> dict[Sends, Unit]:
        """The units without what was refused; what is left of the send is encoded again."""
        del units[send]
        deleted_meanwhile = isinstance(cause, NotFoundError)
        if not deleted_meanwhile and not send.refuse(cause):
            return units
        return self._encode_all([send], units)

    def _encode_all(self, waiting: Sequence[Sends], done: dict[Sends, Unit]) -> dict[Sends, Unit]:
        state = self._log.written_state()
        room = limits.INLINE_COMMIT_BYTES_MAX - sum(
            body.size for unit in done.values() for body in unit.bodies
        )
        for send in waiting:
            try:
                unit = self._encode(send, state, room)
            except KmqError as error:
                send.failure = error
                continue
            if unit.entries:
                done[send] = unit
                room -= sum(body.size for body in unit.bodies)
        return done

    def _encode(self, send: Sends, state: StoreState, room: int) -> Unit:
        topic = state.topic(send.topic)
        placed: list[Placed] = []
        for records in send.encode(topic, self._router, self._log.environment.now_us()):
            placed.append(self._stager.place(records, room=room))
            room -= sum(body.size for body in placed[-1].bodies)
        return Unit(
            tuple(entry for each in placed for entry in each.entries),
            tuple(body for each in placed for body in each.bodies),
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


def _tell_places(units: dict[Sends, Unit], commit: Commit) -> None:
    """Hand each send the first offset it got per partition.

    The entries of a commit stand in the order of its sends, and each send's rows of one
    partition are contiguous.
    """
    entries = iter(entry for entry in commit.entries if isinstance(entry, RecordsEntry))
    for send, unit in units.items():
        first_offsets: dict[int, int] = {}
        for _ in unit.entries:
            entry = next(entries)
            first_offsets.setdefault(entry.partition, entry.base_offset)
        send.place_at(first_offsets)
