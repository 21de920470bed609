"""A stream's group: it follows the batches that the sink has committed, and never goes back.

The query is the group's member (docs/design/spark-groups.md). Its place in the group becomes free
when its process dies. Once another member has taken the place, the query's commits are refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kmq_spark.datasource.offsets import StreamOffset
from kmq_storage.environment import Environment, is_of_this_host
from kmq_storage.errors import ConflictError, FencedError, IllegalStateError
from kmq_storage.format.entries import GroupEntry, GroupOffsetsEntry
from kmq_storage.groups.exclusive import ExclusiveMembership
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.group_state import Group
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import to_datetime

#: Seconds that a query waits for its place: another query may need a moment to end after its stop,
#: and an earlier run of the same query on another host keeps the place until its lease ends.
_WAIT_FOR_OTHERS = 5.0
_WAIT_FOR_OWN = 60.0
_WAIT_STEP = 0.1

_UNNAMED = "a streaming query before its first batch"


@dataclass(frozen=True)
class Place:
    """The place of a query in its group, for another process that acts for the query."""

    group: str
    query: uuid.UUID
    generation: int


class QueryMember:
    """A streaming query as the only member of its group, from its first look to its end.

    Until its first task announces its name, it has the name of its last run.
    """

    def __init__(
        self,
        log: CommitLog,
        group: str,
        query: uuid.UUID,
        environment: Environment,
        *,
        name: str = _UNNAMED,
    ) -> None:
        self._log = log
        self._membership = _join(log, group, str(query), name, environment)
        self.place = Place(group, query, self._membership.generation)

    def advance(self, finished: StreamOffset) -> None:
        """Commit a finished position, unless the group is further already.

        FencedError when the query has lost its place, even if nothing is to be committed.
        """
        known = self._log.state.group(self.place.group)
        if known.generation > self.place.generation:
            raise _taken_over(self._log, self.place)
        advance_group(self._log, self.place, finished)

    def leave(self) -> None:
        """Leave the group, for the next query."""
        self._membership.leave()


def _join(
    log: CommitLog, group: str, query: str, name: str, clock: Environment
) -> ExclusiveMembership:
    begun = clock.monotonic()
    while True:
        known = log.refresh().group(group)
        try:
            return ExclusiveMembership(log, group, query, told=_last_name(known, query) or name)
        except IllegalStateError as taken:
            own = known.member == query
            patience = _WAIT_FOR_OWN if own else _WAIT_FOR_OTHERS
            if clock.monotonic() - begun >= patience:
                holder = str(taken.context["holder"])
                raise _refusal(log.state, group, holder, name, own=own) from taken
        clock.sleep(_WAIT_STEP)


def _last_name(known: Group, query: str) -> str:
    """Return the name of the same query's last run, without its process; "" for other queries."""
    return known.client.rpartition(", ")[0] if known.member == query else ""


def _refusal(state: StoreState, group: str, holder: str, name: str, *, own: bool) -> FencedError:
    known = state.group(group)
    if known.plan.members:
        who, since = "consumers", ""
    else:
        who = known.client or "another process"
        since = f" since {to_datetime(known.joined):%Y-%m-%d %H:%M:%S} UTC" if known.joined else ""
    return FencedError(
        f"group {group} is in use{since} by {who} ({holder}): {_advice(who, name, own=own)}",
        group=group,
        holder=who,
    )


def _advice(holder: str, name: str, *, own: bool) -> str:
    if own:
        return "an earlier run of this query, or one on a copy of its checkpoint: end it first"
    if _may_be_itself(holder, name):
        return (
            "it may be this query itself, reading the source twice, as a frame does that is joined "
            "with itself: load() twice, with a group each, or give all columns of one side other "
            "names by select(...) before the join. Another query: stop it, or give this one a "
            "group of its own"
        )
    return (
        "stop it, or wait for its end, or give this query a group of its own (two load() of one "
        "query need two)"
    )


def _may_be_itself(holder: str, name: str) -> bool:
    """Whether holder and refused member may be two sources of one query.

    Both are on this host and without a name then: the refused source keeps the query from running a
    batch, so the other source never gets a name.
    """
    told, _, process = holder.rpartition(", ")
    return told == name == _UNNAMED and is_of_this_host(process)


def advance_group(
    log: CommitLog, place: Place, finished: StreamOffset, *, durable: bool = False
) -> None:
    """Commit a finished position for the group, unless the group is further already.

    By default it doesn't wait for the disk: the query itself relies on its checkpoint, and its next
    look syncs the commit. FencedError when another member has taken the place.
    """
    entries = forward_entries(log.state, place, finished)
    while entries:
        try:
            log.commit([Unit(entries, forward=True)], durable=durable)
            return
        except ConflictError:  # the query and its listener may both move it
            entries = forward_entries(log.written_state(), place, finished)
        except FencedError as lost:
            raise _taken_over(log, place) from lost


def _taken_over(log: CommitLog, place: Place) -> FencedError:
    known = log.refresh().group(place.group)
    generations = f"(generation {known.generation}, this query has {place.generation})"
    if known.member or known.plan.members:
        by = known.client or "consumers"
        what = f"was taken over by {by} {generations}: a group is read by one query at a time"
    else:
        what = f"had its offsets set, or was deleted, since this query read it {generations}"
    return FencedError(f"group {place.group} {what}", group=place.group)


def announce(log: CommitLog, place: Place, name: str, topics: Mapping[str, Iterable[int]]) -> None:
    """Announce which query reads these partitions; FencedError when it lost its place."""
    known = log.refresh().groups[place.group]
    client = f"{name}, {known.client.rpartition(', ')[2]}"
    assignment = {topic: sorted(partitions) for topic, partitions in topics.items()}
    entry = GroupEntry(place.group, place.generation, str(place.query), client, assignment)
    log.commit([Unit((entry,))], durable=False)


def forward_entries(
    state: StoreState, place: Place, finished: StreamOffset
) -> tuple[GroupOffsetsEntry, ...]:
    """Return the entries that move a group forward to a finished position."""
    committed = state.group_offsets(place.group)
    entries = []
    for name, topic_id in (finished.ids or {}).items():
        topic = state.topic_by_id(topic_id.bytes)
        if topic is None:
            continue
        further = _further(topic, finished.positions[name], committed.get(topic.id, {}))
        if further:
            entries.append(GroupOffsetsEntry(place.group, place.generation, topic.id, further))
    return tuple(entries)


def _further(
    topic: Topic, finished: Mapping[int, int], committed: Mapping[int, int]
) -> tuple[tuple[int, int], ...]:
    # Not beyond the log's end, which a repair or a backup may have set back. A position below the
    # log's start stays there: an archive may have the next records; else they are a loss to report.
    there = ((p, n) for p, n in finished.items() if p < topic.partitions)
    inside = ((p, min(n, topic.parts[p].end)) for p, n in there)
    return tuple(sorted((p, n) for p, n in inside if n > committed.get(p, -1)))
