"""Planted mistakes about a producer's transactions, in the client; each must be found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kmq_spark.client.sending import producer
from kmq_spark.client.sending.committer import Committer
from kmq_spark.client.sending.gathered import Gathered
from kmq_spark.client.sending.transaction import Transaction
from kmq_spark.client.sending.written import Written
from kmq_storage.errors import CommitOutcomeUnknownError, FencedError, UnavailableError
from kmq_storage.log.binding.binding import Unit
from tests.simulation.mutants import Mutant


def forgets_what_went_into_files(patch: pytest.MonkeyPatch) -> None:
    """What is in memory at the end is committed, and no more."""
    original = Committer._encode_whole

    def encode(committer: Committer, written: Written, transaction: Gathered) -> None:
        transaction.in_files = {}
        original(committer, written, transaction)

    patch.setattr(Committer, "_encode_whole", encode)


def commits_what_went_into_files_though_it_was_aborted(patch: pytest.MonkeyPatch) -> None:
    """Once something is in files, nothing holds up the commit."""
    original = Gathered.end

    def end(gathered: Gathered, failure: Any) -> None:
        original(gathered, None if gathered.in_files else failure)

    patch.setattr(Gathered, "end", end)


def tries_again_under_another_sequence(patch: pytest.MonkeyPatch) -> None:
    """A commit whose outcome is unknown is made once more."""

    def store(committer: Committer, written: Written) -> None:
        while True:
            try:
                committer._store(written)
                return
            except CommitOutcomeUnknownError:
                written.sequence = committer._next_sequence
                committer._next_sequence += 1

    patch.setattr(Committer, "_store_surely", store)


def takes_no_answer_for_an_abort(patch: pytest.MonkeyPatch) -> None:
    """A commit whose outcome is unknown counts as not stored."""

    def store(committer: Committer, written: Written) -> None:
        try:
            committer._store(written)
        except CommitOutcomeUnknownError as error:
            raise UnavailableError("not stored") from error

    patch.setattr(Committer, "_store_surely", store)


def opens_again_when_it_is_fenced(patch: pytest.MonkeyPatch) -> None:
    """An older instance takes the next epoch, and commits what it had gathered."""
    original = Committer._append

    def append(committer: Committer, units: Sequence[Unit], sequence: int) -> Any:
        try:
            return original(committer, units, sequence)
        except FencedError:
            committer._epoch = producer._open_epoch(committer._log, committer._name)
            return original(committer, units, sequence)

    patch.setattr(Committer, "_append", append)


def acknowledges_at_once(patch: pytest.MonkeyPatch) -> None:
    """What a transaction acknowledges is done, whatever becomes of the transaction."""
    patch.setattr(Transaction, "ack", lambda _, held: held and held[0].hold.queue.ack(held))


def commits_no_offsets_with_what_went_into_files(patch: pytest.MonkeyPatch) -> None:
    """The offsets of a transaction are forgotten when it goes into files."""
    original = Gathered._write

    def write(gathered: Gathered, sends: Any) -> None:
        original(gathered, sends)
        gathered.beside = lambda: Unit(())

    patch.setattr(Gathered, "_write", write)


TRANSACTION_MUTANTS: tuple[Mutant, ...] = (
    forgets_what_went_into_files,
    commits_what_went_into_files_though_it_was_aborted,
    tries_again_under_another_sequence,
    takes_no_answer_for_an_abort,
    opens_again_when_it_is_fenced,
    acknowledges_at_once,
    commits_no_offsets_with_what_went_into_files,
)
