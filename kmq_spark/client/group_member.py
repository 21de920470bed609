"""A consumer as the one member of its group: it joins, commits and leaves."""

from __future__ import annotations

from collections.abc import Mapping

from kmq_spark.client.subscription import Partitions
from kmq_storage.groups import Membership, committed_offsets, offset_entries
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.log.state import StoreState
from kmq_storage.names import check_name

Offsets = Mapping[str, Mapping[int, int]]


class GroupMember:
    """The place of a consumer in its group, from its making until it leaves."""

    def __init__(self, log: CommitLog, group: str, name: str | None) -> None:
        check_name("group", group)
        check_writable(log.disk)  # members and offsets are commits
        member = name or f"member-{log.environment.new_uuid().hex[:12]}"
        self._log = log
        self._group = group
        self._membership = Membership(log, group, check_name("member", member))

    def tell(self, partitions: Partitions) -> None:
        """Have everybody see which partitions are read."""
        self._membership.tell_assignment(partitions)

    def commit(self, state: StoreState, offsets: Offsets, *, durable: bool) -> None:
        """Commit these offsets, which are of topics that a state knows, for the group."""
        generation = self._membership.generation
        entries = offset_entries(state, self._group, offsets, generation=generation)
        if entries:
            self._log.commit([Unit(entries)], durable=durable)

    def committed(self, state: StoreState, partitions: Partitions) -> dict[str, dict[int, int]]:
        """What the group committed for these partitions."""
        found = committed_offsets(state, self._group)
        return {
            topic: {n: offset for n, offset in found[topic].items() if n in numbers}
            for topic, numbers in partitions.items()
            if topic in found
        }

    def leave(self) -> None:
        """Make room for the next member."""
        self._membership.leave()
