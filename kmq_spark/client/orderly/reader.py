"""The consumer beneath an orderly one: its waiting can be ended, and others commit beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kmq_spark.client.consuming.assignment import Ready
from kmq_spark.client.consuming.consumer import Consumer
from kmq_spark.client.records.record import Record
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.format.manifest import Key
from kmq_storage.log.binding.binding import Unit

_NOTHING = Unit(())


class Place(NamedTuple):
    """A partition, as its users name it."""

    topic: str
    partition: int


class Reader(Consumer):
    """Reads for an orderly consumer; only methods that say so may be called by other threads."""

    _is_called = False

    @property
    def group(self) -> str:
        """The group of the member."""
        return self._in_group().group

    def give_away_by(self, ready: Ready) -> None:
        """Give away only partitions that `ready` returns, of those planned for other members.

        It is asked at each look at the group, and each call looks while some of them stay.
        """
        self._assignment.ready_to_go = ready

    def call(self) -> None:
        """Make the call that waits, or the next one, return at once; from any thread."""
        if not self._is_called:
            self._is_called = True
            self._wake()

    def heed(self) -> None:
        """Wait again."""
        self._is_called = False

    def _stopped(self) -> bool:
        return self._closed or self._is_called

    def read(self, most: int, size: int, timeout: float) -> list[Record]:
        """Return records as `consume` does, of about `size` bytes at most."""
        self._taking.size = size
        return self.consume(most, timeout)

    def beginnings(self) -> dict[Place, tuple[Key, int]]:
        """Return key and next offset of each partition as known; no request could fail."""
        positions = self._assignment.positions()
        return {
            Place(each.topic, each.partition): (each.key, positions[each.topic][each.partition])
            for each in self._assignment.partitions()
        }

    def commit_with(self, offsets: Mapping[Key, int], unit: Unit = _NOTHING) -> None:
        """Commit offsets together with a unit; may be called by any thread.

        Offsets of a deleted topic are left out, also when another topic has its name by now.
        """
        member, by_topic = self._in_group(), dict[bytes, dict[int, int]]()
        for (topic_id, partition), offset in offsets.items():
            by_topic.setdefault(topic_id, {})[partition] = offset
        facts = (member.group, member.place.epoch)
        entries = [
            GroupOffsetsEntry(*facts, topic_id, tuple(sorted(numbers.items())))
            for topic_id, numbers in by_topic.items()
        ]
        entries_of_all = (*unit.entries, *entries)
        self._log.commit([replace(unit, entries=entries_of_all, members=(member.place.id,))])

    def owns(self, key: Key) -> bool:
        """Whether the log says that a partition is this member's; may be called by any thread."""
        member, state = self._in_group(), self._log.refresh()
        return member.is_in(state) and key in member.own(state) | member.moving(state)
