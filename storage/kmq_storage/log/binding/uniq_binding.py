"""Binding of `uniq` entries: which records of a commit were stored before."""

from __future__ import annotations

from collections.abc import Container, Sequence

from kmq_storage.errors import ConflictError, KmqError
from kmq_storage.format.manifest import Key
from kmq_storage.format.uniq_entry import Uniq, UniqEntry
from kmq_storage.log.state.store_state import StoreState


class StoredBeforeError(KmqError):
    """Some records of a unit were stored before, or are already in the same commit."""

    def __init__(
        self, topic_id: bytes, places: dict[tuple[int, int], tuple[int, int] | None], lsn: int
    ) -> None:
        super().__init__(f"{len(places)} records are stored already")
        self.topic_id = topic_id
        #: For each such record, by its partition and number in the unit, the partition and offset
        #: of the first one; None if that is in the same commit.
        self.places = places
        #: The LSN by which all first records are stored.
        self.lsn = lsn


def bound_uniqs(
    state: StoreState, entry: UniqEntry, bases: dict[Key, int], taken: set[bytes]
) -> UniqEntry:
    """The entry with the offsets of its records; StoredBeforeError if some were stored before.

    `bases` has the first offset of the unit in each partition. `taken` has topic and digest of the
    commit's earlier `uniq` records; those of the entry are added.
    """
    check_uniqs(state, entry, taken)
    taken.update(entry.topic_id + each.digest for each in entry.uniqs)
    return entry.bound(
        tuple(Uniq(p, bases[entry.topic_id, p] + row, digest) for p, row, digest in entry.uniqs)
    )


def check_uniqs(state: StoreState, entry: UniqEntry, taken: Container[bytes]) -> None:
    """StoredBeforeError when some records were stored before, or are already in this commit."""
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
    """The partition and offset of each `uniq` record in a commit, by topic and digest."""
    return {
        entry.topic_id + digest: (partition, offset)
        for entry in entries
        if isinstance(entry, UniqEntry)
        for partition, offset, digest in entry.uniqs
    }
