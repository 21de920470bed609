"""The error for an answer that comes too late, which names the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kmq_storage.errors import KmqError, LeaseExpiredError
from kmq_storage.format.queue_entries import Run

if TYPE_CHECKING:
    from kmq_storage.log.state.store_state import StoreState

#: Finds the name of a topic by its id; None for a deleted one.
NameOf: TypeAlias = Callable[[bytes], str | None]

_OVER = "their lock ended, or they were answered already"
#: For deliveries of a queue that has this one's name, but is another one.
OF_ANOTHER = "they are of another queue of this name, which was deleted or is in another store"


def names_in(state: StoreState) -> NameOf:
    """Names of topics from a state."""

    def name_of(topic_id: bytes) -> str | None:
        topic = state.topic_by_id(topic_id)
        return None if topic is None else topic.name

    return name_of


def too_late(queue: str, late: Sequence[Run], name_of: NameOf, why: str = _OVER) -> KmqError:
    """The error for an answer whose delivery no longer holds these records."""
    first = late[0]
    topic = name_of(first.topic_id)
    place = "a topic that is not here" if topic is None else f"{topic}-{first.partition}"
    return LeaseExpiredError(
        f"queue {queue}: the answer for {sum(run.rows for run in late)} record(s) (the "
        f"first is offset {first.first} of {place}) comes too late: {why}; nothing is changed",
        queue=queue,
        late=[(name_of(run.topic_id), run.partition, run.first, run.rows) for run in late],
    )
