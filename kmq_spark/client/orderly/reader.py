"""The consumer beneath an orderly one: its waiting can be ended, and others commit beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kmq_spark.client.assignment import Ready
from kmq_spark.client.consumer import Consumer
from kmq_storage.groups import offset_entries
from kmq_storage.log.binding import Unit

_NOTHING = Unit(())


class Place(NamedTuple):
    """A partition, as its users name it."""

    topic: str
    partition: int


class Reader(Consumer):
    """Reads for an orderly consumer; what is marked so may be called by any thread."""

    _is_called = False

    @property
    def group(self) -> str:
        """Whose member it is."""
        return self._in_group().group

    def give_away_by(self, ready: Ready) -> None:
        """Give away only those partitions, of all that shall be another member's, that are ready.

        It is asked at each look at the group, and each call looks while some of them stay.
        """
        self._assignment.ready_to_go = ready

    def call(self) -> None:
        """Have the call that waits, or the next one, return at once; from any thread."""
        if not self._is_called:
            self._is_called = True
            self._wake()

    def heed(self) -> None:
        """Wait again."""
        self._is_called = False

    def _stopped(self) -> bool:
        return self._closed or self._is_called

    def beginnings(self) -> dict[str, dict[int, int]]:
        """The next offset of each partition, as known: no request that could fail."""
        return self._assignment.positions()

    def commit_with(self, offsets: Mapping[Place, int], unit: Unit = _NOTHING) -> None:
        """Commit offsets, and what a unit has, as one; from any thread."""
        member, nested = self._in_group(), dict[str, dict[int, int]]()
        for (topic, partition), offset in offsets.items():
            nested.setdefault(topic, {})[partition] = offset
        state = self._log.refresh()
        entries = offset_entries(state, member.group, nested, generation=member.place.epoch)
        self._log.commit([replace(unit, entries=(*unit.entries, *entries))])

    def owns(self, place: Place) -> bool:
        """Whether a partition is this member's, as the log says now; from any thread."""
        member, state = self._in_group(), self._log.refresh()
        topic = state.find_topic(place.topic)
        if topic is None or not member.is_in(state):
            return False
        return (topic.id, place.partition) in member.own(state) | member.moving(state)
