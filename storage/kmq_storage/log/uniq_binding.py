"""Which records of a commit are stored already: asked of the state that the commit will follow."""

from __future__ import annotations

from collections.abc import Container, Sequence

from kmq_storage.errors import ConflictError, KmqError
from kmq_storage.format.uniq_entry import Uniq, UniqEntry
from kmq_storage.log.state import StoreState


class StoredBeforeError(KmqError):
    """Some records of a unit are stored already, or stand in the same commit."""

    def __init__(
        self, topic_id: bytes, places: dict[tuple[int, int], tuple[int, int] | None], lsn: int
    ) -> None:
        super().__init__(f"{len(places)} records are stored already")
        self.topic_id = topic_id
        #: Partition and number in the unit of each, and where the first one is; None: in the
        #: commit that this was to be.
        self.places = places
        #: The commit with which all first ones are stored.
        self.lsn = lsn


def bound_uniqs(
    state: StoreState, entry: UniqEntry, bases: dict[tuple[bytes, int], int], taken: set[bytes]
) -> UniqEntry:
    """The entry with the offsets of its records; StoredBeforeError for those that are stored.

    `bases`: the first offset of the unit in each partition. `taken`: what this commit has, topic
    and digest; those of the entry are added.
    """
    check_uniqs(state, entry, taken)
    taken.update(entry.topic_id + each.digest for each in entry.uniqs)
    return entry.bound(
        tuple(Uniq(p, bases[entry.topic_id, p] + row, digest) for p, row, digest in entry.uniqs)
    )


def check_uniqs(state: StoreState, entry: UniqEntry, taken: Container[bytes]) -> None:
    """StoredBeforeError when some of its records are stored, or in this commit."""
    topic = state.topic_by_id(entry.topic_id)
    if topic is None:
        raise ConflictError("the topic was deleted meanwhile")
    since = state.not_before(entry.time) - round(topic.settings.uniq_window * 1e6)
    stored: dict[tuple[int, int], tuple[int, int] | None] = {}
    for partition, row, digest in entry.uniqs:
        place = state.uniqs.find(entry.topic_id, digest, since)
        if place is not None or entry.topic_id + digest in taken:
            stored[partition, row] = place
    if stored:
        raise StoredBeforeError(entry.topic_id, stored, state.lsn)


def places_in(entries: Sequence[object]) -> dict[bytes, tuple[int, int]]:
    """Where a commit has the records with each digest, by topic and digest."""
    return {
        entry.topic_id + digest: (partition, offset)
        for entry in entries
        if isinstance(entry, UniqEntry)
        for partition, offset, digest in entry.uniqs
    }
