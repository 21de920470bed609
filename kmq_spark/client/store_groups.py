"""The calls of a store that concern consumer groups: what they committed, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from kmq_spark.client.consuming.reading import resolve_group_offsets
from kmq_storage.groups import administration
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.model import GroupInfo
from kmq_storage.names import check_name


class StoreGroups:
    """The part of a store that is about consumer groups."""

    log: CommitLog

    def groups(self) -> list[GroupInfo]:
        """Describe every consumer group, sorted by name.

        KmqWarning when damage to the log may hide some of their commits.
        """
        state = self.log.refresh()
        warn_of_doubtful_ends(state, state.topics.values())
        groups = sorted(state.groups.items())
        return [administration.describe_in(state, self.log, *each) for each in groups]

    def describe_group(self, name: str) -> GroupInfo:
        """Describe one group: its members, committed offsets and lag.

        NotFoundError when no consumer ever joined it and nothing was ever committed for it.
        """
        found = administration.describe_group(self.log, check_name("group", name))
        warn_of_doubtful_ends(self.log.state, self.log.state.topics.values())
        return found

    def set_group_offsets(
        self,
        name: str,
        offsets: Mapping[str, Mapping[int, int]] | str | datetime,
        *,
        topics: Iterable[str] | None = None,
    ) -> None:
        """Set the committed offsets of a group that has no live members.

        Args:
            name: The group; it is made when it is new.
            offsets: `{topic: {partition: n}}`, where n is the next offset to read; or "earliest",
                "latest" or a datetime with a time zone.
            topics: With a word or a datetime: the topics that it applies to. By default those for
                which the group has offsets.

        Raises:
            IllegalStateError: The group has a live member.
            OffsetOutOfRangeError: An offset lies outside the log.
            NotFoundError: A topic doesn't exist; or none is given, and the group has no offsets.
        """
        administration.check_idle(self.log, check_name("group", name))
        resolved = resolve_group_offsets(self.log, name, offsets, topics)
        administration.set_group_offsets(self.log, name, resolved)

    def copy_group(self, source: str, target: str) -> None:
        """Give `target` the committed offsets of the group `source`.

        IllegalStateError when `target` has a live member.
        """
        names = check_name("group", source), check_name("group", target)
        administration.copy_group(self.log, *names)

    def delete_group(self, name: str) -> None:
        """Delete a group with its committed offsets; IllegalStateError with a live member."""
        administration.delete_group(self.log, check_name("group", name))
