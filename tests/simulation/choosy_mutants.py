"""Planted mistakes about filters, expiry and `uniq`; each must be found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kmq_storage.format.uniq_entry import Uniq, UniqEntry
from kmq_storage.log.binding import binding
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.rows import NEVER
from kmq_storage.log.state.queues.source import Source
from kmq_storage.log.state.queues.topics import Binding
from kmq_storage.log.state.uniqs import Uniqs
from kmq_storage.queues import looking
from tests.simulation.mutants import Mutant, _nothing


def lets_in_what_a_filter_refuses(patch: pytest.MonkeyPatch) -> None:
    """Everything enters."""
    patch.setattr(looking, "let_in", lambda _, offsets, __: np.ones(len(offsets), bool))


def filters_anew_what_was_there_before(patch: pytest.MonkeyPatch) -> None:
    """Another filter holds for the records before it, too."""

    def bind(queue: Queue, topic_id: bytes, starts: Any, expression: str | None) -> None:
        before = queue.bindings.get(topic_id)
        first = starts if before is None else before.periods[0][0]
        queue.bindings[topic_id] = Binding(((first, expression),))

    patch.setattr(Queue, "bind", bind)


def takes_looks_at_what_a_failed_sync_took_back(patch: pytest.MonkeyPatch) -> None:
    """They count for what comes in its place."""
    patch.setattr(looking, "Unit", lambda entries, **_: Unit(entries))


def hands_out_what_expired(patch: pytest.MonkeyPatch) -> None:
    """Nothing is ever too old."""
    original = Queue.apply_schedule

    def apply(queue: Queue, base: int, schedules: Sequence[Any]) -> None:
        original(queue, base, [each._replace(expires=NEVER) for each in schedules])

    patch.setattr(Queue, "apply_schedule", apply)


def keeps_what_expired(patch: pytest.MonkeyPatch) -> None:
    """Nobody gets it, and it is there for ever."""
    patch.setattr(Source, "drop_expired", lambda *_: 0)


def looks_for_no_doubles(patch: pytest.MonkeyPatch) -> None:
    """Each record is the first one."""

    def bound(_: Any, entry: UniqEntry, bases: dict[Any, int], __: Any) -> UniqEntry:
        return entry.bound(
            tuple(Uniq(p, bases[entry.topic_id, p] + row, d) for p, row, d in entry.uniqs)
        )

    patch.setattr(binding, "bound_uniqs", bound)


def forgets_digests_at_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Who begins at a checkpoint takes a double for the first one."""
    patch.setattr(Uniqs, "restore", _nothing)


def tells_of_a_double_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """The place of the record before the first one is told."""
    original = Uniqs.find

    def find(uniqs: Uniqs, topic_id: bytes, digest: bytes, since: int) -> Any:
        found = original(uniqs, topic_id, digest, since)
        return found and (found[0], found[1] - 1)

    patch.setattr(Uniqs, "find", find)


CHOOSY_MUTANTS: tuple[Mutant, ...] = (
    lets_in_what_a_filter_refuses,
    filters_anew_what_was_there_before,
    hands_out_what_expired,
    keeps_what_expired,
    looks_for_no_doubles,
    forgets_digests_at_a_checkpoint,
    tells_of_a_double_elsewhere,
)
