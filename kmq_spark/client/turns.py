"""Whose turn it is: of thousands of partitions only those are asked that may have something."""

from __future__ import annotations

from collections.abc import Iterable

from kmq_spark.client.subscription import TopicPartition
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Partition


class Turns:
    """Partitions take turns; one that is at its end rests until a commit changes it.

    What takes one in is a plain store, and comes before what takes it away: an interruption in
    between leaves a partition that is asked in vain once, never one that nobody asks.
    """

    def __init__(self) -> None:
        #: Those to ask, in the order of their turns.
        self.awake: dict[TopicPartition, None] = {}
        self._resting: dict[Partition, TopicPartition] = {}
        #: The state that the resting ones are of, and how many of its changes were seen.
        self._state: StoreState | None = None
        self._seen = 0

    def look(self, state: StoreState, assigned: Iterable[TopicPartition]) -> None:
        """Wake those that changed since the last look, or all where nobody can tell."""
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
        """Ask this one too, whatever comes."""
        self.awake[partition] = None

    def give_up(self) -> None:
        """Some are read no more: the next look begins anew."""
        self._state = None

    def end(self, partition: TopicPartition) -> None:
        """The next turn of a partition comes after the others'."""
        del self.awake[partition]  # no call may come in between: it could be interrupted
        self.awake[partition] = None

    def rest(self, partition: TopicPartition, part: Partition) -> None:
        """Don't ask a partition, which is at its end, until it changed."""
        self._resting[part] = partition
        del self.awake[partition]
