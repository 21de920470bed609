"""Whose turn it is: of thousands of partitions, only those that may have something are asked."""

from __future__ import annotations

from collections.abc import Iterable

from kmq_spark.client.consuming.subscription import TopicPartition
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Partition


class Turns:
    """Partitions take turns; a partition that is at its end rests until a commit changes it.

    A partition is taken in by a plain assignment, before it is taken away elsewhere. An
    interruption in between leaves a partition that is asked once in vain, never one that is not
    asked at all.
    """

    def __init__(self) -> None:
        #: Those to ask, in the order of their turns.
        self.awake: dict[TopicPartition, None] = {}
        self._resting: dict[Partition, TopicPartition] = {}
        #: The state of the resting ones, and how many of its changes were seen.
        self._state: StoreState | None = None
        self._seen = 0

    def look(self, state: StoreState, assigned: Iterable[TopicPartition]) -> None:
        """Wake partitions that changed since the last look, or all where that can't be told."""
        changed = state.changes.since(self._seen) if state is self._state else None
        if changed is None or state.broken is not None:
            self._wake_all(state, assigned)
            return
        for part in changed:
            if part in self._resting:
                self.awake[self._resting[part]] = None
                del self._resting[part]
        self._seen += len(changed)

    def _wake_all(self, state: StoreState, assigned: Iterable[TopicPartition]) -> None:
        seen, all_of_them = state.changes.count, dict.fromkeys(assigned)
        kept = {each: None for each in self.awake if each in all_of_them}
        self.awake, self._resting = kept | all_of_them, {}
        self._seen, self._state = seen, state

    def wake(self, partition: TopicPartition) -> None:
        """Ask this partition, too."""
        self.awake[partition] = None

    def give_up(self) -> None:
        """Forget which ones rest, as some are no longer read: the next look asks all."""
        self._state = None

    def end(self, partition: TopicPartition) -> None:
        """Let the next turn of this partition come after the others'."""
        del self.awake[partition]  # no call in between: it could be interrupted
        self.awake[partition] = None

    def rest(self, partition: TopicPartition, part: Partition) -> None:
        """Don't ask this partition, which is at its end, until it changes."""
        self._resting[part] = partition
        del self.awake[partition]
