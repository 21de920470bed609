"""Planted mistakes about topics that are unbound and bound again; each must be found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kmq_storage.format.queue_entries import RECALL, AnswerEntry, LookEntry
from kmq_storage.log.binding import binding
from kmq_storage.log.state.queues import snapshot as queue_snapshot
from kmq_storage.log.state.queues.late_answers import NameOf
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.source import Source
from kmq_storage.log.state.queues.topics import Left
from kmq_storage.log.state.store_state import StoreState
from tests.simulation.mutants import Mutant, _nothing


def numbers_deliveries_from_one_again(patch: pytest.MonkeyPatch) -> None:
    """What is handed out as if for the first time has the number of the first time."""
    original = Source.__init__

    def begin(source: Source, start: int, *, looked: bool, unnumbered: int) -> None:
        original(source, start, looked=looked, unnumbered=0)

    patch.setattr(Source, "__init__", begin)


def forgets_at_a_checkpoint_how_often_topics_were_unbound(patch: pytest.MonkeyPatch) -> None:
    """Who begins at a checkpoint numbers deliveries as if none was."""
    original = queue_snapshot._unbound

    def unbound(queue: Any) -> dict[str, Any]:
        return {name: each for name, each in original(queue).items() if name != "unbound"}

    patch.setattr(queue_snapshot, "_unbound", unbound)


def forgets_who_holds_what_of_a_topic_that_is_unbound(patch: pytest.MonkeyPatch) -> None:
    """What somebody holds is handed out to somebody else."""
    patch.setattr(Left, "keep", _nothing)


def takes_looks_of_a_former_binding(patch: pytest.MonkeyPatch) -> None:
    """What was looked at before the topic was unbound counts, whether it is read again or not."""
    original = binding.check_look

    def check(state: StoreState, entry: LookEntry) -> None:
        queue = state.queues.by_id(entry.queue_id)
        if queue is None or entry.topic_id in queue.topic_ids():
            times = 0 if queue is None else queue.unbound.get(entry.topic_id, 0)
            original(state, replace(entry, unbound=times))

    patch.setattr(binding, "check_look", check)


def finishes_what_is_missing_of_a_topic_that_it_reads_no_more(patch: pytest.MonkeyPatch) -> None:
    """Of a topic that is unbound, records count as those that nobody had, whoever has them."""
    original = Queue.check_answer

    def check(queue: Queue, entry: AnswerEntry, name_of: NameOf) -> None:
        unread = {run.topic_id for run in entry.runs}.difference(queue.topic_ids())
        if entry.answer != RECALL or not unread:
            original(queue, entry, name_of)

    patch.setattr(Queue, "check_answer", check)


REBINDING_MUTANTS: tuple[Mutant, ...] = (
    numbers_deliveries_from_one_again,
    forgets_at_a_checkpoint_how_often_topics_were_unbound,
    forgets_who_holds_what_of_a_topic_that_is_unbound,
    takes_looks_of_a_former_binding,
    finishes_what_is_missing_of_a_topic_that_it_reads_no_more,
)
