"""What is known of one record of a queue."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import EXTEND, RELEASE, RETRY, AnswerEntry
from kmq_storage.log.state.queues.rows import NEVER

#: A record of a queue: partition and offset.
Place: TypeAlias = tuple[Key, int]
_USUAL = 4


class Card(NamedTuple):
    """One record of a queue."""

    #: free, held, waiting, done.
    state: str = "free"
    #: Nobody gets it before.
    at: int = 0
    #: The number of its last delivery; 0 for none.
    count: int = 0
    priority: int = _USUAL
    #: The hash of its key; 0 for none.
    order: int = 0
    #: Nobody gets it from then on.
    expires: int = NEVER

    def is_over(self, now: int) -> bool:
        """Whether nobody holds it, and its time is over."""
        held = self.state == "held" and self.at > now
        return self.expires <= now and self.state != "done" and not held


FRESH = Card()


def answered(card: Card, entry: AnswerEntry) -> Card:
    """The record after an answer of the one who holds it, or of nobody."""
    if entry.answer == RETRY:
        return card._replace(state="waiting", at=entry.at)
    if entry.answer == EXTEND:
        return card._replace(at=entry.at)
    if entry.answer == RELEASE:
        count = card.count - 1 if times_of(card.count) > 1 else 0
        return card._replace(state="free", at=0, count=count)
    return card._replace(state="done")
