"""From sends to the units of a commit: small batches lie in the commit, large ones in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from kmq_spark.client.encoding.routing import Router
from kmq_spark.client.records.stored_times import stored_times
from kmq_spark.client.sending.arrow_work import ArrowWork
from kmq_spark.client.sending.sends import ArrowSend, Sends
from kmq_spark.client.sending.work import Means, OldStateError, Work
from kmq_spark.client.sending.works import work_of, work_of_many
from kmq_spark.errors import InvalidRequestError, KmqError, NotFoundError, UnavailableError
from kmq_storage import limits
from kmq_storage.log.binding.binding import RefusedError, Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.staging import PartitionRecords, Placed, Stager, file_ids
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.uploads import Later, Together, Uploads


class Encoder:
    """Makes units of a producer's sends; `prepare` and `stage` may run beside the one committer."""

    def __init__(self, log: CommitLog, router: Router, *, durable: bool) -> None:
        self._log = log
        times = partial(stored_times, log)
        self._means = Means(router, self._place, log.environment.now_us, times)
        self._means_of_old = replace(self._means, refuses=False)
        self._durable = durable
        self._stager = Stager(
            log.files,
            file_ids(log),
            sync=durable,
            small_room=log.small_room,
            later=_later(log, durable=durable),
        )

    def work_of(self, sends: Sequence[Sends]) -> Sequence[Work]:
        """Return sends as work, which `encode` makes units of."""
        return work_of(sends, by_hash=self._means.router.by_hash)

    def encode(
        self, waiting: Sequence[Work], before: Mapping[Work, Unit], *, room: int | None = None
    ) -> dict[Work, Unit]:
        """Return the units `before`, and those of waiting work that could be encoded.

        The sends of other work have failed. `room`: bytes that the commit has left; by default what
        `before` leaves.
        """
        state, done = self._log.recent_state(), dict(before)
        if room is None:
            room = self._log.inline_bytes_max - sum(map(_inline_bytes, done.values()))
        for work in waiting:
            try:
                done[work] = unit = self._unit(work, state, room)
            except KmqError as error:
                work.fail(error)
                continue
            room -= _inline_bytes(unit)
        return done

    def _unit(self, work: Work, state: StoreState, room: int) -> Unit:
        """Return the work's unit; what doesn't fit is refused by the newest state only."""
        if self._log.is_remote:  # elsewhere, `recent_state` is the newest
            try:
                return work.unit(state, self._means_of_old, room)
            except (OldStateError, InvalidRequestError, NotFoundError):
                state = self._log.refresh()
        return work.unit(state, self._means, room)

    def uploaded(self, units: dict[Work, Unit]) -> dict[Work, Unit]:
        """Return the units whose files are stored; the work of the others has failed."""
        there: dict[Work, Unit] = {}
        for work, unit in units.items():
            try:
                self._stager.wait_for(unit.entries)
                there[work] = unit
            except KmqError as error:
                work.fail(error)
        return there

    def without_refused(self, units: dict[Work, Unit], refused: RefusedError) -> dict[Work, Unit]:
        """Return the units, with what is left of the refused work in its place among them."""
        works = list(units)
        work = works.pop(refused.unit)
        room = self._log.inline_bytes_max - sum(_inline_bytes(units[each]) for each in works)
        before = {each: units[each] for each in works[: refused.unit]}
        after = {each: units[each] for each in works[refused.unit :]}
        return self.encode(work.refuse(refused.cause), before, room=room) | after

    def stage(self, sends: Sequence[Sends]) -> dict[Work, Unit]:
        """Write records of a transaction to files that nobody reads before its commit.

        It is done in the calling thread, as durable as the commit; KmqError when some can't be
        stored.
        """
        try:
            no_room = -self._log.small_room  # not for small batches, either
            # Each work makes a file for each of its partitions.
            works = work_of_many(sends, limits.TRANSACTION_MEMORY_BYTES)
            units = self.encode(works, {}, room=no_room)
            if not self._log.is_remote:  # there, uploads go on beside the transaction
                units = self.uploaded(units)
        except OSError as error:
            raise UnavailableError(f"store {self._log.files.url}: {error}") from error
        for refused in filter(None, (send.first_error() for send in sends)):
            raise refused
        for work in units:
            work.let_go()
        return units

    def prepare(self, send: ArrowSend) -> None:
        """Encode in the calling thread, beside the worker; errors are raised again by the commit.

        While the bytes are in the processor's caches, this takes a fraction of what it takes later.
        """
        work = ArrowWork(send)
        with suppress(KmqError):
            topic = self._log.known_state.topic(send.topic)
            work.prepare(topic, self._means, self._try_place)
            send.work = work

    def _try_place(self, parts: Sequence[PartitionRecords]) -> Unit | None:
        room = self._log.inline_bytes_max
        return self._place(parts, room) if self._stager.is_prompt(parts, room=room) else None

    def _place(self, parts: Sequence[PartitionRecords], room: int) -> Unit:
        placed: list[Placed] = []
        for records in parts:
            placed.append(self._stager.place(records, room=room))
            room -= sum(body.size for body in placed[-1].bodies)
        return Unit(
            tuple(entry for each in placed for entry in each.entries),
            tuple(body for each in placed for body in each.bodies),
            synced=self._durable,
        )

    def close(self) -> None:
        """Stage nothing more."""
        self._stager.close()


def _later(log: CommitLog, *, durable: bool) -> Later | None:
    if log.is_remote:
        return Uploads(log.files)
    return Together(log.files) if durable else None


def _inline_bytes(unit: Unit) -> int:
    return sum(body.size for body in unit.bodies)
