"""Records that a consumer handed out and did not commit before their partition was given away.

Another member gets them again. So a commit of what was made of them comes too late, and says so
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from kmq_spark.client.consuming.fetcher import NO_POSITION
from kmq_spark.client.consuming.subscription import TopicPartition, by_topic
from kmq_spark.errors import FencedError
from kmq_storage.groups.administration import Offsets
from kmq_storage.log.state.group_state import Ownership
from kmq_storage.log.state.store_state import StoreState


class Giving(Enum):
    """Which of the partitions that are planned for other members a call may give away.

    NONE: it has taken records, which may be of any.
    IDLE: those of which the caller has no uncommitted records, or is called back to commit them.
    ALL: it begins to take records, so the caller is done with those before.
    """

    NONE, IDLE, ALL = range(3)


class Uncommitted:
    """Which of a consumer's records will come again at another member of its group."""

    def __init__(self, group: str) -> None:
        self._group = group
        #: Where each partition began, or went on after a seek.
        self._begins: dict[TopicPartition, int] = {}
        #: Behind the last record that it handed out before a seek, unless it comes again here.
        self._reached: dict[TopicPartition, int] = {}
        #: What is owned since it began; transactions that noted offsets of it look at it.
        self._owned: dict[TopicPartition, Ownership] = {}
        #: Partitions that were given away with uncommitted records handed out.
        self.gone: set[TopicPartition] = set()
        #: Whether some of these were lost since a call last began to take records.
        self.was_robbed = False

    def begin(self, partition: TopicPartition, position: int) -> None:
        """Note where a partition begins to hand out records."""
        self._begins[partition] = position
        self._owned[partition] = Ownership(self._group, *partition)

    def owned(self, offsets: Offsets) -> tuple[Ownership, ...]:
        """Return what must still be owned, without a break, when these offsets are committed."""
        return tuple(
            owned
            for each, owned in self._owned.items()
            if each.partition in offsets.get(each.topic, ())
        )

    def seek(self, partition: TopicPartition, position: int, target: int) -> None:
        """Note that a partition goes on elsewhere than at the next offset, which is `position`."""
        self._reached[partition] = min(self.reached(partition, position), target)
        self._begins[partition] = target

    def reached(self, partition: TopicPartition, position: int) -> int:
        """Return the offset behind the last record that was handed out; NO_POSITION without one.

        `position` is the next offset that it hands out.
        """
        reached = self._reached.get(partition, NO_POSITION)
        has_some = position > self._begins.get(partition, NO_POSITION)
        return max(reached, position) if has_some else reached

    def note(self, offsets: Offsets) -> None:
        """Note what this consumer has committed."""
        for owned in self.owned(offsets):
            owned.committed = offsets[owned.topic][owned.partition]

    def among(
        self,
        partitions: Iterable[TopicPartition],
        places: Mapping[TopicPartition, int],
        state: StoreState,
        *,
        lost: bool = False,
    ) -> set[TopicPartition]:
        """Return those of which the caller has records that are not committed.

        `places`: the next offset of each. What is committed of `lost` ones may be another member's.
        """
        found = set()
        by_group = state.group_offsets(self._group)
        for each in partitions:
            topic, at = state.topic_by_id(each.topic_id), places.get(each, NO_POSITION)
            start = at if topic is None else topic.partition(each.partition).first
            done = by_group.get(each.topic_id, {}).get(each.partition, NO_POSITION)
            if lost:
                done = self._owned[each].committed if each in self._owned else NO_POSITION
            if self.reached(each, at) > max(start, done):
                found.add(each)
        return found

    def part(
        self,
        partitions: Sequence[TopicPartition],
        places: Mapping[TopicPartition, int],
        state: StoreState,
        *,
        lost: bool = False,
    ) -> bool:
        """Forget partitions that are no longer read, before another member can have them.

        True when records that the caller has of them come again elsewhere.
        """
        gone = self.among(partitions, places, state, lost=lost)
        self.gone |= gone
        for each in partitions:
            if each in self._owned:  # an interruption may have come before
                self._owned.pop(each).is_over = True
            self._begins.pop(each, None)
            self._reached.pop(each, None)
        return bool(gone)

    def fenced(self) -> FencedError:
        """Return the error, once, for a commit that leaves out what another member has by now."""
        gone, self.gone, self.was_robbed = by_topic(self.gone), set(), False
        return FencedError(
            f"records of {gone} were handed out and not committed before these partitions "
            f"went to another member of group {self._group}, which gets them again",
            group=self._group,
            partitions=gone,
        )
