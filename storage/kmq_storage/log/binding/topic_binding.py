"""Binding of topic entries: check a new, changed or deleted topic against the state it will follow.

All functions are pure. `binding` calls them.
"""

from __future__ import annotations

from kmq_storage.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
)
from kmq_storage.format.entries import TopicEntry
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic


def check_topic(state: StoreState, entry: TopicEntry) -> None:
    """Check a topic, which the entry deletes when it gives it no partitions.

    AlreadyExistsError for a new one whose name is taken, CorruptionError for one that damaged
    commits may have made, NotFoundError for a deleted one, InvalidRequestError for fewer
    partitions, ConflictError when somebody else changed its schema.
    """
    existing = state.topics.get(entry.name)
    if existing is not None and existing.id != entry.topic_id:
        raise AlreadyExistsError(f"Topic[{entry.name}] exists already.", topic=entry.name)
    known = state.topic_by_id(entry.topic_id)
    if known is None:
        if entry.partitions == 0:
            raise NotFoundError(f"Topic[{entry.name}] doesn't exist.", topic=entry.name)
        if state.lost_commits:
            state.topic(entry.name)  # CorruptionError, as for all who ask for it
    elif entry.partitions:
        _check_change(known, entry)


def _check_change(known: Topic, entry: TopicEntry) -> None:
    if entry.partitions < known.partitions:
        raise InvalidRequestError(
            f"topic {entry.name} has {known.partitions} partitions; partitions only grow, "
            f"{entry.partitions} is less",
            topic=entry.name,
            partitions=entry.partitions,
        )
    schemas = tuple(entry.settings.get("schemas", ()))
    # Stored batches refer to versions by number, so versions are only added.
    if schemas[: len(known.settings.schemas)] != known.settings.schemas:
        raise ConflictError(
            f"the schema of topic {entry.name} was changed by somebody else meanwhile",
            topic=entry.name,
        )
