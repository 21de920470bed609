"""What a consumer is opened with."""

from __future__ import annotations

from dataclasses import dataclass

from kmq_spark.client.consuming.group_member import GroupMember
from kmq_spark.client.handles.arguments import check_choice
from kmq_spark.errors import InvalidRequestError
from kmq_storage.groups.membership import MemberSettings
from kmq_storage.log.commit_log import CommitLog

_RESETS = ("earliest", "latest", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The options of a consumer; times in seconds."""

    group: str | None = None
    name: str | None = None
    auto_offset_reset: str = "earliest"
    auto_commit: bool = False
    #: Seconds.
    max_poll_interval: float = 300.0
    session_timeout: float = 45.0
    assignor: str = "range"

    def __post_init__(self) -> None:
        check_choice("auto_offset_reset", self.auto_offset_reset, _RESETS)
        if self.auto_commit and self.group is None:
            raise InvalidRequestError("auto_commit needs a group", option="auto_commit")


def member_of(log: CommitLog, settings: ConsumerSettings) -> GroupMember | None:
    """Return the place that a consumer takes in its group; None without a group."""
    if settings.group is None:
        return None
    name = settings.name
    if name is None:
        name = f"member-{log.environment.new_uuid().hex[:12]}"
    facts = (settings.name is not None, settings.assignor, settings.session_timeout)
    return GroupMember(log, settings.group, MemberSettings(name, *facts))
