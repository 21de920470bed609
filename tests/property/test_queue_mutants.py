"""Finds a model of queues that has gone blind: it must find each planted mistake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings

from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import Run
from kmq_storage.log.state.queues.partition_rows import Rows
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.rows import WAITING
from kmq_storage.log.state.queues.source import Source, Wish
from tests.property import test_queue_model as model
from tests.property.planted import Mutant, check_finds
from tests.simulation import queue_mutants as known


def _delivers(patch: pytest.MonkeyPatch, more: int) -> None:
    original = Source.take

    def take(source: Source, key: Key, span: Any, wish: Wish) -> list[Run]:
        most = wish.deliveries_max + more
        return original(source, key, span, replace(wish, deliveries_max=most))

    patch.setattr(Source, "take", take)


def delivers_once_more(patch: pytest.MonkeyPatch) -> None:
    """A record comes once more than it may."""
    _delivers(patch, 1)


def delivers_once_less(patch: pytest.MonkeyPatch) -> None:
    """The last delivery never comes."""
    _delivers(patch, -1)


def _gives_up(patch: pytest.MonkeyPatch, later: int) -> None:
    original = Source.exhausted

    def exhausted(source: Source, key: Key, now: int, most: int) -> Iterable[Run]:
        return original(source, key, now, most + later)

    patch.setattr(Source, "exhausted", exhausted)


def gives_up_too_early(patch: pytest.MonkeyPatch) -> None:
    """A record is a dead letter before its last delivery."""
    _gives_up(patch, -1)


def gives_up_too_late(patch: pytest.MonkeyPatch) -> None:
    """A record that had all its deliveries is there for ever."""
    _gives_up(patch, 1)


def extends_for_longer(patch: pytest.MonkeyPatch) -> None:
    """A lock ends later than was asked."""

    def extend(source: Source, run: Run, at: int) -> None:
        source.rows.change(run.first, run.end, at=at + 5)

    patch.setattr(Source, "extend", extend)


def retries_at_once(patch: pytest.MonkeyPatch) -> None:
    """A pause is a wish."""

    def wait(source: Source, run: Run, _at: int) -> None:
        source.rows.change(run.first, run.end, at=0, state=WAITING)

    patch.setattr(Source, "wait", wait)


def counts_nothing_that_expired(patch: pytest.MonkeyPatch) -> None:
    """What expired was never there."""
    original = Source.drop_expired
    patch.setattr(Source, "drop_expired", lambda source, now: original(source, now) * 0)


def begins_with_the_same_partition(patch: pytest.MonkeyPatch) -> None:
    """Partitions don't take turns."""
    patch.setattr(Queue, "turns", property(lambda _: 0, lambda *_: None), raising=False)


def forgets_its_rows_at_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Who begins at a checkpoint knows of nothing that is held."""
    original = model.restore_queues

    def restore(queues: Any, members: Any, rows: bytes) -> None:
        original(queues, members, rows)
        for queue in queues:
            for source in queue.sources.values():
                source.rows = Rows()

    patch.setattr(model, "restore_queues", restore)


_MUTANTS: tuple[Mutant, ...] = (
    delivers_once_more,
    delivers_once_less,
    gives_up_too_early,
    gives_up_too_late,
    extends_for_longer,
    retries_at_once,
    counts_nothing_that_expired,
    begins_with_the_same_partition,
    forgets_its_rows_at_a_checkpoint,
    known.hands_out_what_somebody_holds,
    known.takes_every_answer,
    known.takes_answers_of_earlier_deliveries,
    known.takes_answers_after_the_lock,
    known.judges_by_the_receiver_s_clock,
    known.counts_no_deliveries,
    known.gives_back_what_counts_as_handed_out,
    known.passes_over_what_nobody_had,
    known.lets_two_bury,
    known.hands_out_before_it_is_due,
    known.knows_no_priorities,
    known.hands_out_keys_side_by_side,
    known.looks_on_an_old_state,
    known.trims_what_was_only_handed_out,
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", _MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_that_is_planted_in_queues_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    check_finds(model.MACHINES, settings(model.STEPS, max_examples=20))
