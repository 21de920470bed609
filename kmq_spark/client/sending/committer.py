"""From sends to written commits: append, and repeat without what was refused.

A refused send (unknown topic, full topic, bad partition) fails alone; the rest is committed. Each
commit carries the producer's sequence, so a retry after an unknown outcome is stored once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby

from kmq_spark.client.keyed.receiving import another_was_faster
from kmq_spark.client.sending.encoder import Encoder
from kmq_spark.client.sending.gathered import Gathered
from kmq_spark.client.sending.joining import leave_out
from kmq_spark.client.sending.sends import Sends
from kmq_spark.client.sending.work import TRY_AGAIN
from kmq_spark.client.sending.written import Written, own_part
from kmq_spark.errors import (
    CommitOutcomeUnknownError,
    CorruptionError,
    KmqError,
    OffsetOutOfRangeError,
    QueueFullError,
    UnavailableError,
)
from kmq_storage.cutting import cut
from kmq_storage.environment import this_process
from kmq_storage.format.entries import ProducerEntry
from kmq_storage.log.binding.binding import DuplicateCommitError, RefusedError, Unit
from kmq_storage.log.binding.uniq_binding import StoredBeforeError
from kmq_storage.log.commit_log import CommitLog, WrittenCommit
from kmq_storage.log.disk_errors import is_of_the_disk
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.queues.handing import forget_expired
from kmq_storage.queues.looking import pass_refused
from kmq_storage.waking import can_be_interrupted

_LOGGER = logging.getLogger(__name__)

_ATTEMPTS = 3
#: Offsets were trimmed away just then; the next attempt leaves these out.
_TRIMMED = (OffsetOutOfRangeError,)
_AGAIN = TRY_AGAIN + _TRIMMED


class Committer:
    """Writes the commits of one producer identity; one thread at a time."""

    def __init__(self, log: CommitLog, encoder: Encoder, *, name: str, epoch: int) -> None:
        self._log = log
        self._encoder = encoder
        self._name = name
        self._epoch = epoch
        self._next_sequence = 0
        #: What was written last: a signal may have interrupted it.
        self._begun: Written | None = None

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
        encoder = self._encoder
        units = encoder.encode(encoder.work_of(left), {})
        while units:
            written.units = units = encoder.uploaded(units)
            if written.is_empty:
                return
            try:
                self._store(written)
            except RefusedError as refused:
                if self._makes_room(refused.cause):
                    continue
                if isinstance(refused.cause, StoredBeforeError):
                    written.lsn = max(written.lsn, refused.cause.lsn)
                units = encoder.without_refused(units, refused)
            else:
                return

    def _makes_room(self, cause: KmqError) -> bool:
        """Whether a full queue may have room by now: records expired, or a filter refuses them."""
        name = cause.context.get("queue") if isinstance(cause, QueueFullError) else None
        if name is not None:
            with suppress(KmqError):  # it stays full, as its producer is told
                queue = self._log.refresh().queues.find(name)
                return queue is not None and (
                    forget_expired(self._log, queue, this_process())
                    or pass_refused(self._log, ChunkReader(self._log.files), queue)
                )
        return False

    def _write_whole(self, written: Written, transaction: Gathered) -> None:
        """Write all of a transaction, or nothing; a conflict with other writers is tried again."""
        written.works = written.works or self._encoder.work_of(transaction.waiting)
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
            if self._makes_room(cause) or another_was_faster(cause):
                continue
            if isinstance(cause, StoredBeforeError):  # each time for other rows
                leave_out(cause, written.units, transaction.in_files)
                written.lsn = max(written.lsn, cause.lsn)
                continue
            left -= 1
            if not left or not isinstance(cause, _TRIMMED if transaction.in_files else _AGAIN):
                raise cause

    def _encode_whole(self, written: Written, transaction: Gathered) -> None:
        units = self._encoder.encode(written.works, transaction.in_files)
        written.units = self._encoder.uploaded(units)
        written.beside = transaction.beside()
        error = transaction.first_error()
        if error is not None:
            raise error

    def _store_surely(self, written: Written) -> None:
        """Store a commit; if the outcome is unknown, store it again under its sequence.

        A commit that is stored already is found by its sequence, also where it would be refused by
        what it did. If the second attempt is refused, the outcome stays unknown.
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
        self._encoder.close()

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


def _runs(sends: Sequence[Sends], most: int) -> Iterable[Sequence[Sends]]:
    """Split sends into those of one commit each: a transaction goes alone."""
    if len(sends) == 1:
        yield sends
        return
    for whole, group in groupby(sends, lambda send: isinstance(send, Gathered)):
        some = list(group)
        yield from ([send] for send in some) if whole else cut(some, lambda send: send.size, most)
