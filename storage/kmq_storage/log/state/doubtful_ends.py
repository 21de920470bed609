"""Partition ends that damage leaves in doubt: values come with a warning, and reads are errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from kmq_storage.errors import KmqWarning
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic


def warn_of_doubtful_ends(state: StoreState, topics: Iterable[Topic], *, depth: int = 1) -> None:
    """Issue a KmqWarning if the ends of these topics are in doubt because of damage.

    It points to the caller of the function that calls this, or `depth` - 1 levels above.
    """
    names = [
        f"{topic.name}-{number}"
        for topic in list(topics)
        for number, part in enumerate(topic.parts)
        if state.broken or part.doubt
    ]
    damage = state.broken or (state.damage[-1] if names else None)
    if damage is not None:
        warnings.warn(
            f"commits {damage.first_lsn} to {damage.last_lsn} in {damage.file} are damaged "
            f"({damage.reason}), and more may have been stored than is told of "
            f"{_listed(names)}; reading there is an error; put the file back from a copy, or "
            "repair the store",
            KmqWarning,
            stacklevel=2 + depth,
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more partitions" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more if names else "the store"
