"""From sends to written commits: encode, append, and repeat without what was refused.

A refused send (unknown topic, full topic, bad partition) fails alone; the rest is committed. Each
commit carries the producer's sequence, so a retry after an unknown outcome is stored once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby

from kmq_spark.client.encoding.routing import Router
from kmq_spark.client.sending.arrow_work import ArrowWork
from kmq_spark.client.sending.gathered import Gathered
from kmq_spark.client.sending.joining import leave_out
from kmq_spark.client.sending.sends import ArrowSend, Sends
from kmq_spark.client.sending.stored_times import stored_times
from kmq_spark.client.sending.work import TRY_AGAIN, Means, Work
from kmq_spark.client.sending.works import work_of, work_of_many
from kmq_spark.client.sending.written import Written, own_part
from kmq_spark.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    KmqError,
    OffsetOutOfRangeError,
    QueueFullError,
    UnavailableError,
)
from kmq_storage import limits
from kmq_storage.cutting import cut
from kmq_storage.environment import this_process
from kmq_storage.format.entries import ProducerEntry
from kmq_storage.log.binding.binding import DuplicateCommitError, RefusedError, Unit
from kmq_storage.log.binding.uniq_binding import StoredBeforeError
from kmq_storage.log.commit_log import CommitLog, WrittenCommit
from kmq_storage.log.disk_errors import is_of_the_disk
from kmq_storage.log.staging import PartitionRecords, Placed, Stager, file_ids
from kmq_storage.log.uploads import Later, Together, Uploads
from kmq_storage.queues.deliveries import forget_expired
from kmq_storage.waking import can_be_interrupted

_LOGGER = logging.getLogger(__name__)

_ATTEMPTS = 3


class Committer:
    """Writes the commits of one producer identity; one thread at a time."""

    def __init__(
        self, log: CommitLog, router: Router, *, name: str, epoch: int, durable: bool
    ) -> None:
        self._log = log
        times = partial(stored_times, log)
        self._means = Means(router, self._place, log.environment.now_us, times)
        self._name = name
        self._epoch = epoch
        self._durable = durable
        self._next_sequence = 0
        #: What was written last, should a signal have interrupted it.
        self._begun: Written | None = None
        self._stager = Stager(
            log.files,
            file_ids(log),
            sync=durable,
            small_room=log.small_room,
            later=_later(log, durable=durable),
        )

    def check_epoch(self) -> None:
        """FencedError when a newer producer of this name is known already."""
        self._log.known_state.producers.check_epoch(self._name, self._epoch)

    def write(self, sends: Sequence[Sends], *, again: bool = False) -> Iterator[Written]:
        """Write all sends in commits of bounded size; sends that can't be stored have failed then.

        `again`: a signal interrupted the last attempt. A commit that may be written keeps its
        sequence.
        """
        begun = self._begun
        if again and begun is not None and list(begun.sends) == list(sends):
            self._next_sequence = begun.sequence
        else:
            begun = None
        for some in _runs(sends, self._log.inline_bytes_max):
            self._begun = written = begun or Written(some, {}, self._next_sequence)
            self._next_sequence = written.sequence + 1
            if written.commit is None:
                self._write_or_fail(written)
            yield written

    def _write_or_fail(self, written: Written) -> None:
        try:
            self._write(written)
        except KmqError as error:
            written.fail(error)
        except BaseException as error:  # a partitioner may raise anything
            if is_of_the_disk(error):
                written.fail(UnavailableError(f"store {self._log.files.url}: {error}"))
                return
            if can_be_interrupted():
                raise  # else the worker would meet it again
            _LOGGER.exception("commit of %d sends failed", len(written.sends))
            written.fail(KmqError(f"sends failed unexpectedly: {error!r}"))

    def _write(self, written: Written) -> None:
        """Try until a commit of everything that can be stored is written."""
        if isinstance(written.sends[0], Gathered):
            self._write_whole(written, written.sends[0])
            return
        left = [send for send in written.sends if not (send.failure or send.done)]
        units = self._encode_all(self._work_of(left), {})
        while units:
            written.units = units = self._uploaded(units)
            if written.is_empty:
                return
            try:
                self._store(written)
            except RefusedError as refused:
                if self._makes_room(refused.cause):
                    continue
                if isinstance(refused.cause, StoredBeforeError):
                    written.lsn = max(written.lsn, refused.cause.lsn)
                units = self._without_refused(units, refused)
            else:
                return

    def _makes_room(self, cause: KmqError) -> bool:
        """Whether a full queue has room by now, since records of it expired."""
        name = cause.context.get("queue") if isinstance(cause, QueueFullError) else None
        if name is not None:
            with suppress(KmqError):  # it stays full, as its producer is told
                queue = self._log.refresh().queues.find(name)
                return queue is not None and forget_expired(self._log, queue, this_process())
        return False

    def _without_refused(self, units: dict[Work, Unit], refused: RefusedError) -> dict[Work, Unit]:
        """Return the units, with what is left of the refused work in its place among them."""
        works = list(units)
        work = works.pop(refused.unit)
        room = self._log.inline_bytes_max - sum(_inline_bytes(units[each]) for each in works)
        before = {each: units[each] for each in works[: refused.unit]}
        after = {each: units[each] for each in works[refused.unit :]}
        return self._encode_all(work.refuse(refused.cause), before, room=room) | after

    def _write_whole(self, written: Written, transaction: Gathered) -> None:
        """Write all of a transaction, or nothing; a conflict with other writers is tried again."""
        written.works = written.works or self._work_of(transaction.waiting)
        left = _ATTEMPTS
        while transaction.failure is None:
            self._encode_whole(written, transaction)
            if written.is_empty:
                return
            try:
                self._store_surely(written)
                return
            except RefusedError as refused:
                cause = refused.cause
            if self._makes_room(cause):
                continue
            if isinstance(cause, StoredBeforeError):  # each time for other rows
                leave_out(cause, written.units, transaction.in_files)
                written.lsn = max(written.lsn, cause.lsn)
                continue
            left -= 1
            if not left or transaction.in_files or not isinstance(cause, TRY_AGAIN):
                raise cause

    def _encode_whole(self, written: Written, transaction: Gathered) -> None:
        written.units = self._uploaded(self._encode_all(written.works, transaction.in_files))
        written.beside = Unit(transaction.entries_beside())
        error = transaction.first_error()
        if error is not None:
            raise error

    def _store_surely(self, written: Written) -> None:
        """Store a commit; if the outcome is unknown, store it again under its sequence.

        A commit that is stored already is found by its sequence. What refuses the second attempt
        may be the commit itself, or have come later, so the outcome stays unknown then.
        """
        try:
            self._store(written)
            return
        except CommitOutcomeUnknownError as error:
            unknown = error
        for _ in range(_ATTEMPTS - 1):
            with suppress(KmqError, RefusedError, OSError):
                self._store(written)
                return
        raise unknown

    def _store(self, written: Written) -> None:
        try:
            written.commit = self._append(written.to_append(), written.sequence)
        except OffsetOutOfRangeError:  # a retry that came late: what was collected was on disk
            written.commit, written.collected = None, True

    def _work_of(self, sends: Sequence[Sends]) -> Sequence[Work]:
        return work_of(sends, by_hash=self._means.router.by_hash)

    def stage(self, sends: Sequence[Sends]) -> dict[Work, Unit]:
        """Write records of a transaction to files that nobody reads before its commit.

        It is done in the calling thread, as durable as the commit; KmqError when some can't be
        stored.
        """
        try:
            no_room = -self._log.small_room  # not for small batches, either
            # Each work makes a file for each of its partitions.
            works = work_of_many(sends, limits.TRANSACTION_MEMORY_BYTES)
            units = self._encode_all(works, {}, room=no_room)
            if not self._log.is_remote:  # there, uploads go on beside the transaction
                units = self._uploaded(units)
        except OSError as error:
            raise UnavailableError(f"store {self._log.files.url}: {error}") from error
        for refused in filter(None, (send.first_error() for send in sends)):
            raise refused
        for work in units:
            work.let_go()
        return units

    def _encode_all(
        self, waiting: Sequence[Work], before: Mapping[Work, Unit], *, room: int | None = None
    ) -> dict[Work, Unit]:
        state, done = self._log.recent_state(), dict(before)
        if room is None:
            room = self._log.inline_bytes_max - sum(map(_inline_bytes, done.values()))
        for work in waiting:
            if state.find_topic(work.topic) is None:
                state = self._log.refresh()  # another process may have made it just now
            try:
                done[work] = unit = work.unit(state, self._means, room)
            except KmqError as error:
                work.fail(error)
                continue
            room -= _inline_bytes(unit)
        return done

    def _uploaded(self, units: dict[Work, Unit]) -> dict[Work, Unit]:
        """Return the units whose files are stored; the work of the others has failed."""
        there: dict[Work, Unit] = {}
        for work, unit in units.items():
            try:
                self._stager.wait_for(unit.entries)
                there[work] = unit
            except KmqError as error:
                work.fail(error)
        return there

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

    def _append(self, units: Sequence[Unit], sequence: int) -> WrittenCommit:
        """Write a commit under its sequence, or find it when it is stored already.

        OffsetOutOfRangeError when it was stored, and collected since.
        """
        entry = ProducerEntry(self._name, self._epoch, sequence)
        try:
            return self._log.append([*units, Unit((entry,))])
        except DuplicateCommitError as duplicate:
            return own_part(self._log.written_commit(duplicate.lsn), entry)
        except RefusedError as refused:
            if refused.unit == len(units):
                raise refused.cause from None  # the producer itself is refused: it is fenced
            raise

    def close(self) -> None:
        """Stage nothing more."""
        self._stager.close()

    def make_durable(self, written: Written) -> None:
        """Return when the commit is on disk, or has failed; an unknown outcome is tried again."""
        for attempt in range(_ATTEMPTS):
            try:
                if written.commit is not None:
                    self._log.sync(written.commit)
                elif written.lsn:
                    self._log.sync(written.lsn)
                return
            except UnavailableError as error:
                if attempt == _ATTEMPTS - 1 or not self._write_again(written):
                    written.fail(error)
                    return
            except CorruptionError as error:  # waiting callers get it, whichever thread this is
                written.fail(error)
                return

    def _write_again(self, written: Written) -> bool:
        """After a failed sync, write the same commit under its sequence; False if it can't be."""
        try:
            self._store(written)
        except (KmqError, RefusedError, OSError):
            return False
        return True


def _later(log: CommitLog, *, durable: bool) -> Later | None:
    if log.is_remote:
        return Uploads(log.files)
    return Together(log.files) if durable else None


def _runs(sends: Sequence[Sends], most: int) -> Iterable[Sequence[Sends]]:
    """Split sends into those of one commit each: a transaction goes alone."""
    if len(sends) == 1:
        yield sends
        return
    for whole, group in groupby(sends, lambda send: isinstance(send, Gathered)):
        some = list(group)
        yield from ([send] for send in some) if whole else cut(some, lambda send: send.size, most)


def _inline_bytes(unit: Unit) -> int:
    return sum(body.size for body in unit.bodies)
