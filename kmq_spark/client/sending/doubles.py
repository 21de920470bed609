"""Rows of a work that are not stored, since a record with their `uniq` is stored already."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from kmq_storage.format.uniq_entry import Uniq, UniqEntry
from kmq_storage.log.binding.uniq_binding import StoredBeforeError, places_in

Place = tuple[int, int]


class Doubles:
    """What is known of the rows that have a `uniq`, by the row's number in the work."""

    def __init__(self) -> None:
        #: The place of the first record, for rows that the log knows; None: in the next commit.
        self._stored: dict[int, Place | None] = {}
        #: The earlier row of this work that is the first record.
        self._firsts: dict[int, int] = {}
        #: Rows by partition and number in the unit.
        self._rows: dict[Place, int] = {}
        self._digests: Mapping[int, bytes] = {}
        self._topic_id = b""

    def __contains__(self, row: int) -> bool:
        return row in self._stored or row in self._firsts

    def __bool__(self) -> bool:
        return bool(self._stored or self._firsts)

    @property
    def have_digests(self) -> bool:
        """Whether some rows have a `uniq`."""
        return bool(self._digests)

    def rows(self, digests: Mapping[int, bytes], failed: Container[int]) -> list[int]:
        """The rows that are not to be stored; those that `failed` are ignored."""
        firsts: dict[bytes, int] = {}
        self._firsts, self._digests = {}, digests
        for row, digest in sorted(digests.items()):
            if row in failed:
                continue
            if row not in self._stored and digest in firsts:
                self._firsts[row] = firsts[digest]
            firsts.setdefault(digest, row)
        return [*self._stored, *self._firsts]

    def entries(
        self, topic_id: bytes, now: int, places: Mapping[int, Place]
    ) -> tuple[UniqEntry, ...]:
        """The entry to commit beside rows; `places`: partition and number in the unit of each."""
        self._topic_id = topic_id
        own = {row: place for row, place in places.items() if row in self._digests}
        self._rows = {place: row for row, place in own.items()}
        uniqs = tuple(Uniq(*place, self._digests[row]) for row, place in own.items())
        return (UniqEntry(topic_id, now, uniqs),) if uniqs else ()

    def note(self, error: StoredBeforeError) -> None:
        """Note rows that the log refused, with the places of their first records."""
        self._stored |= {self._rows[place]: first for place, first in error.places.items()}

    def forget_expected(self) -> None:
        """Forget first records that this commit was to have: others may store them by now."""
        self._stored = {row: place for row, place in self._stored.items() if place is not None}

    def resolve(self, entries: Sequence[object]) -> list[int]:
        """Look up the first records that the commit was to have; return rows without one."""
        open_still = [row for row, place in self._stored.items() if place is None]
        found = places_in(entries) if open_still else {}
        for row in open_still:
            self._stored[row] = found.get(self._topic_id + self._digests[row])
        return [row for row in open_still if self._stored[row] is None]

    def place(self, row: int) -> Place | int | None:
        """Where the first record is: a place, or another row; None when it is unknown."""
        return self._firsts[row] if row in self._firsts else self._stored[row]
