"""What a prefix of the log says of slips: who may still note, and whose notes count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kmq_storage.format.queue_entries import (
    BY_OWNER,
    TAKEN_OVER,
    TAKING_OVER,
    SlipAcquireEntry,
    SlipAnswerEntry,
)


class Round(NamedTuple):
    """One use of a slip that no commit ended yet."""

    number: int
    #: When the locks end.
    until: int
    #: What may be noted: each record with its delivery.
    noting: frozenset[object]
    taken: bool = False


def check_none_ended(rounds: Mapping[bytes, Round], now: int) -> None:
    """What is noted comes first when locks ended."""
    late = [each for each in rounds.values() if each.until <= now]
    assert not late, "what was noted there was not looked at"


def begun(rounds: dict[bytes, Round], entry: SlipAcquireEntry, noting: Iterable[object]) -> None:
    """A receiver may note what it got."""
    assert entry.slip_id not in rounds, "a slip has one use at a time"
    rounds[entry.slip_id] = Round(entry.round, entry.until, frozenset(noting))


def ended(rounds: dict[bytes, Round], entry: SlipAnswerEntry, noted: Iterable[object]) -> None:
    """It is told what was noted; or that somebody else looks, which comes first for others."""
    before = rounds.pop(entry.slip_id, None)
    assert before is not None, "the slip is not in use"
    assert before.number == entry.round, "what was noted earlier, or later, does not count"
    assert before.noting.issuperset(noted), "only what was got there is noted there"
    if entry.by == TAKING_OVER:
        assert not before.taken, "somebody said so before"
        assert not entry.runs, "nobody looked yet"
        rounds[entry.slip_id] = before._replace(taken=True)
    else:
        assert entry.by in (BY_OWNER, TAKEN_OVER)
        assert before.taken == (entry.by == TAKEN_OVER), "the one who said so looked"
