"""Copying topics from one store to another, for example from a disk to a bucket and back.

A copied topic keeps its id, offsets, timestamps and content. It is copied segment by segment. Each
segment is committed together with the offset at which it ends, so an interrupted copy goes on where
it stopped. Every record batch is verified when it is read, and again after it was written.

- **Lost records** of the source are a gap in the copy, as in the source. So are records that the
  source trimmed before they were copied.
- **Copied records stay**, even if the source trims them later. In a keyed topic, they stay only as
  long as the copy keeps up with the source.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kmq_storage.copying.definitions import put_definition
from kmq_storage.copying.partition import PartitionCopy
from kmq_storage.copying.queues import copy_queues, queues_of
from kmq_storage.errors import ConflictError, InvalidRequestError, KmqWarning
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry
from kmq_storage.groups.administration import has_live_member
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.log.state.accounts_topics import what_it_holds
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.checkpointing import check_undamaged
from kmq_storage.names import queue_log


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What one call copied, without what earlier calls copied."""

    topics: int
    segments: int
    rows: int
    #: Bytes of the segments written.
    bytes: int
    #: Ranges of offsets without records, which the source had lost or trimmed before the copy.
    gaps: int
    #: Queues whose state was brought up to that of the source.
    queues: int


def copy_topics(
    source: CommitLog, target: CommitLog, names: Iterable[str] | None = None
) -> CopyReport:
    """Copy all topics, or those with given names, and the offsets of their groups.

    Queues are copied only together with all topics. A reader of the target sees each partition grow
    in order. Offsets of groups only move forward.

    - **AlreadyExistsError**: the target has another topic with the same name.
    - **InvalidRequestError**: the copy was written to or deleted in the target, the source has
      other records than were copied, or both are one store.
    - **CorruptionError**: the source is damaged; all that can be read before the damage is copied.
    - **IllegalStateError**: the target is read-only.
    """
    check_writable(target.files)
    _check_two_stores(source, target)
    state = source.refresh()
    queues, lsn = (queues_of(source) if names is None else []), state.lsn
    topics = _wanted(state, names) + [state.topic(queue_log(queue.name)) for queue in queues]
    copied = _copy_records(source, target, state, topics)
    _copy_groups(state, target, topics)
    put = copy_queues(queues, lsn, target)
    if names is None:
        check_undamaged(state)  # damage may hide whole topics, groups and queues
    segments = [each for each in copied if isinstance(each, SegmentEntry)]
    return CopyReport(
        topics=len(topics) - len(queues),
        segments=len(segments),
        rows=sum(each.rows for each in segments),
        bytes=sum(each.length for each in segments),
        gaps=len(copied) - len(segments),
        queues=put,
    )


def _check_two_stores(source: CommitLog, target: CommitLog) -> None:
    if source.identity.store_id == target.identity.store_id:
        raise InvalidRequestError(
            f"{source.files.url} and {target.files.url} are one store, or files that were copied "
            "from one to the other; give a target that is none yet, or one that kmq copied to"
        )


def _wanted(state: StoreState, names: Iterable[str] | None) -> list[Topic]:
    if names is None:
        return state.user_topics()
    return [state.topic(name) for name in dict.fromkeys(names)]


def _copy_records(
    source: CommitLog, target: CommitLog, state: StoreState, topics: Sequence[Topic]
) -> list[SegmentEntry | GapEntry]:
    copied: list[SegmentEntry | GapEntry] = []
    for topic in topics:
        try:
            copied.extend(_copied(source, target, topic))
        except InvalidRequestError as error:  # a group received from these queues in the target
            what = what_it_holds(state, topic)
            if what is None:
                raise
            told = f"{what} stays as it is in {target.files.url}: {error.message}"
            warnings.warn(told, KmqWarning, stacklevel=3)
        for number in range(topic.partitions):
            state.check_end(topic.name, number)
    return copied


def _copied(
    source: CommitLog, target: CommitLog, topic: Topic
) -> Iterator[SegmentEntry | GapEntry]:
    put_definition(target, topic)
    for number in range(topic.partitions):
        yield from PartitionCopy(source, target, topic, number).run()


def _copy_groups(state: StoreState, target: CommitLog, topics: Iterable[Topic]) -> None:
    """Move groups without live members forward to their offsets in the source."""
    topics = list(topics)
    while entries := tuple(_moves(state, target, topics)):
        with suppress(ConflictError):  # somebody moved one further: look again
            target.commit([Unit(entries, forward=True)])
            return


def _moves(
    state: StoreState, target: CommitLog, topics: Iterable[Topic]
) -> Iterator[GroupOffsetsEntry]:
    known = target.written_state()
    for name in list(state.groups):
        for topic in topics:
            ahead = _ahead(state, known, name, topic)
            if ahead and not has_live_member(target, name):
                yield GroupOffsetsEntry(name, -1, topic.id, ahead)


def _ahead(
    state: StoreState, target: StoreState, group: str, topic: Topic
) -> tuple[tuple[int, int], ...]:
    """A group's offsets that are ahead in the source, limited to records that the target has."""
    copied, known = target.topic(topic.name), target.group_offsets(group).get(topic.id, {})
    wanted = state.group_offsets(group).get(topic.id, {})
    found = {n: copied.partition(n).readable_from(offset) for n, offset in wanted.items()}
    return tuple((n, offset) for n, offset in found.items() if offset > known.get(n, -1))
