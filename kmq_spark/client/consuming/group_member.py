"""A consumer as a member of its group: which partitions it owns, and what it commits."""

from __future__ import annotations

from collections.abc import Iterable

from kmq_spark.client.consuming.subscription import Partitions, Subscription, TopicPartition
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.format.group_entries import GroupPlan
from kmq_storage.format.manifest import Key
from kmq_storage.groups.administration import Offsets, committed_offsets, offset_entries
from kmq_storage.groups.membership import (
    MemberSettings,
    SharedMembership,
    Version,
    topics_wanted,
    version_of,
)
from kmq_storage.groups.planning import is_complete
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.log.state.group_state import Ownership
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.names import check_name


class GroupMember:
    """The place of a consumer in its group, from its first subscription until it leaves."""

    def __init__(self, log: CommitLog, group: str, settings: MemberSettings) -> None:
        self.group = check_name("group", group)
        check_writable(log.files)  # members and offsets are commits
        check_name("member", settings.name)
        self._log = log
        self.place = SharedMembership(log, group, settings)

    def enter(self, subscription: Subscription) -> bool:
        """Join with this subscription, or change to it; True if it owns nothing from before."""
        epoch = self.place.epoch
        self.place.enter(subscription.interest)
        return self.place.epoch != epoch

    def version(self, state: StoreState) -> Version:
        """Return what changes whenever something of the group may concern its members."""
        return version_of(state, self.group)

    def is_in(self, state: StoreState) -> bool:
        """Whether it still has its place in the group."""
        return self.place.is_in(self._plan(state))

    def check_not_replaced(self, state: StoreState) -> None:
        """FencedError when another member of its name has its place."""
        if not self.is_in(state):
            self.place.check_not_replaced(self._plan(state))

    def _plan(self, state: StoreState) -> GroupPlan:
        return state.group(self.group).plan

    def renew(self, state: StoreState) -> bool:
        """Plan anew for partitions that came or went; False when there are none."""
        plan = self._plan(state)
        if is_complete(plan, topics_wanted(state, plan)):
            return False
        self.place.renew()
        return True

    def own(self, state: StoreState) -> frozenset[Key]:
        """Return the partitions to read: those that it owns and keeps."""
        plan = self._plan(state)
        return frozenset(key for key in plan.owned_by(self.place.epoch) if key not in plan.targets)

    def moving(self, state: StoreState) -> frozenset[Key]:
        """Return the partitions that it is to release."""
        plan = self._plan(state)
        return frozenset(key for key in plan.owned_by(self.place.epoch) if key in plan.targets)

    def release(self, state: StoreState, keys: Iterable[Key], offsets: Offsets) -> None:
        """Release these partitions with their offsets, for the members that wait for them."""
        self.place.release(keys, self._entries(state, offsets))

    def commit(self, state: StoreState, offsets: Offsets, *, durable: bool | None) -> None:
        """Commit these offsets, of topics that the state knows, for the group.

        `durable`: None is as the store was opened.
        """
        unit = self.unit(state, offsets)
        if unit.entries:
            self._log.commit([unit], durable=durable)

    def unit(self, state: StoreState, offsets: Offsets, owned: tuple[Ownership, ...] = ()) -> Unit:
        """Return what commits these offsets as this member, while it owns these without a break."""
        return Unit(self._entries(state, offsets), members=(self.place.id,), owned=owned)

    def _entries(self, state: StoreState, offsets: Offsets) -> tuple[GroupOffsetsEntry, ...]:
        if offsets and not self.place.epoch:
            self.enter(Subscription())  # without topics it joins to commit
        return offset_entries(state, self.group, offsets, generation=self.place.epoch)

    def committed_position(self, state: StoreState, partition: TopicPartition) -> int | None:
        """Return the group's committed offset in a partition, or None."""
        offsets = state.group_offsets(self.group).get(partition.topic_id, {})
        return offsets.get(partition.partition)

    def committed(self, state: StoreState, partitions: Partitions) -> dict[str, dict[int, int]]:
        """Return the group's committed offsets of these partitions."""
        found = committed_offsets(state, self.group)
        return {
            topic: {n: found[topic][n] for n in numbers if n in found[topic]}
            for topic, numbers in partitions.items()
            if topic in found
        }
