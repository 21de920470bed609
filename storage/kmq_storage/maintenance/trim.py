"""Trimming: raise the start of a partition, by hand or by a topic's retention.

A commit raises the start. Collection deletes the files later, when nothing refers to them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TypeAlias

from kmq_storage.cutting import cut
from kmq_storage.errors import ConflictError, NotFoundError
from kmq_storage.format.layout_entries import TrimEntry
from kmq_storage.format.manifest import Key
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.log.moving import planning
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.accounts_topics import check_may_be_trimmed
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic, out_of_range
from kmq_storage.maintenance.ages import cautious_now
from kmq_storage.maintenance.candidates import oldest_rows
from kmq_storage.maintenance.damaged import Apart
from kmq_storage.maintenance.queue_starts import allow_trims, begin_queues_at, is_worth_it, last_row
from kmq_storage.maintenance.reports import TrimReport, all_trimmed
from kmq_storage.maintenance.seal import most_together

_LOGGER = logging.getLogger(__name__)

#: A new start that was committed, and the rows and bytes that it dropped.
_Trimmed: TypeAlias = "tuple[NewStart, tuple[int, int]]"

#: How often a trim by hand plans again when maintenance changed the partitions meanwhile.
_LOOKS = 20


@dataclass(frozen=True, slots=True)
class NewStart:
    """A planned start of a partition, and the rows and bytes that it drops.

    In a keyed topic, the offset `start` has no record: it tells where the queues begin, and readers
    begin behind it.
    """

    topic: Topic
    partition: int
    start: int
    rows: int
    size: int

    @property
    def first(self) -> int:
        """The first offset for readers."""
        return self.start + self.topic.settings.keyed


def plan_trim(topic: Topic, starts: Mapping[int, int]) -> list[NewStart]:
    """Plan a trim of partitions to these offsets; an offset up to the current start does nothing.

    OffsetOutOfRangeError for an offset beyond the end.
    """
    plan = []
    for number, start in starts.items():
        part = topic.partition(number)
        if start > part.end:
            raise out_of_range(topic.name, number, start, part)
        if start > part.first and not topic.settings.keyed:
            plan.append(_new_start(topic, number, start))
        elif start > part.first and (row := last_row(topic, number, start)) is not None:
            plan.append(_new_start(topic, number, min(start, row.end_offset) - 1))
    return plan


def _new_start(topic: Topic, number: int, start: int) -> NewStart:
    old, rows, size = topic.partition(number).start, 0, 0
    for row in topic.index(number).rows(old, start):
        before, after = row.held_from(old), row.held_from(start)
        rows, size = rows + before[0] - after[0], size + before[1] - after[1]
    return NewStart(topic, number, start, rows, size)


def plan_retention(state: StoreState, now: int) -> list[NewStart]:
    """Plan what the retention of each topic drops at time `now` (UTC us).

    Only whole rows of the manifest are dropped: a record stays until all that are stored with it
    may be dropped.
    """
    plan: list[NewStart] = []
    oldest: Mapping[Key, int] | None = None
    for topic in list(state.topics.values()):
        queue = state.queues.by_id(topic.id)
        if topic.settings.cleanup != "delete" or (queue is None and _keeps_all(topic)):
            continue
        if queue is not None:  # a queue's own log: finished records are dropped, no others
            done = queue.done_below(queue.log_key, topic.partition(0).end)
            starts = {0: max(_whole_rows_below(topic, done), topic.partition(0).start)}
        else:
            oldest = oldest_rows(state) if oldest is None else oldest
            numbers = [n for n in range(topic.partitions) if _may_drop(topic, n, oldest, now)]
            starts = {number: _retained_from(topic, number, now) for number in numbers}
            if topic.settings.keyed:
                starts = {n: each for n, each in starts.items() if _pays(topic, n, each, now)}
        plan += plan_trim(topic, starts)
    return plan


def _keeps_all(topic: Topic) -> bool:
    return topic.settings.retention is None and topic.settings.retention_bytes is None


def _pays(topic: Topic, number: int, start: int, now: int) -> bool:
    """Whether a trim of keyed queues drops enough to pay for rewriting where they begin."""
    retention = topic.settings.retention
    expired = None if retention is None else now - int(2 * retention * 1e6)
    return is_worth_it(topic, number, start, expired)


def _whole_rows_below(topic: Topic, offset: int) -> int:
    """The end of the manifest's last row that ends at or below an offset, or 0."""
    rows = topic.index(0).rows(topic.partition(0).start, offset)
    return max((row.end_offset for row in rows if row.end_offset <= offset), default=0)


def _may_drop(topic: Topic, number: int, oldest: Mapping[Key, int], now: int) -> bool:
    """Whether retention may drop rows of a partition, whose oldest row is as old as `oldest`."""
    most, expired = topic.settings.retention_bytes, _expired(topic, now)
    too_old = expired is not None and oldest.get((topic.id, number), now) < expired
    return too_old or (most is not None and topic.partition(number).size >= most)


def _expired(topic: Topic, now: int) -> int | None:
    """Records that were committed before this time (UTC us) are too old; None without retention."""
    retention = topic.settings.retention
    return None if retention is None else now - int(retention * 1e6)


def _retained_from(topic: Topic, number: int, now: int) -> int:
    part, settings = topic.partition(number), topic.settings
    start, left, expired = part.start, part.size, _expired(topic, now)
    for row in topic.index(number).rows(part.start, part.end):
        rest = left - row.held_from(part.start)[1]
        too_old = expired is not None and row.time < expired
        too_much = settings.retention_bytes is not None and rest >= settings.retention_bytes
        if not (too_old or too_much):
            break
        start, left = row.end_offset, rest
    return start


def trim_topic(
    log: CommitLog, name: str, starts_of: Callable[[Topic], Mapping[int, int]]
) -> TrimReport:
    """Trim a topic to the starts that `starts_of` returns for its current state.

    ConflictError when maintenance changed a partition each time that this planned.
    """

    def trimmed(state: StoreState) -> tuple[int, TrimReport]:
        topic, lsn = state.topic(name), state.lsn
        check_may_be_trimmed(state, topic)
        plan = plan_trim(topic, starts_of(topic))
        return len(plan), trim(log, plan, lsn)

    reports: list[TrimReport] = []
    for _ in range(_LOOKS):
        planned, report = planning(log, trimmed)
        reports.append(report)
        if planned == sum(map(len, report.starts.values())):
            return all_trimmed(reports)
    raise ConflictError(
        f"topic {name} is sealed or compacted faster than it can be trimmed; try again", topic=name
    )


def retain(log: CommitLog, state: StoreState, *, apart: Apart) -> TrimReport:
    """Trim what the retention of each topic no longer keeps."""
    lsn = state.lsn  # read before planning: commits that are applied meanwhile then conflict
    plan = plan_retention(state, log.environment.now_us())
    if plan:
        plan = plan_retention(state, cautious_now(log))
    for each in plan:
        for queue in state.queues.unfinished_below(each.topic.id, each.partition, each.first):
            _LOGGER.warning(
                "retention drops records of %s-%d below offset %d that queue %s did not finish",
                *(each.topic.name, each.partition, each.first, queue.name),
            )
    return trim(log, plan, lsn, apart=apart)


def trim(
    log: CommitLog, plan: Iterable[NewStart], lsn: int, *, apart: Apart = nullcontext
) -> TrimReport:
    """Commit new starts that were planned on the state at LSN `lsn` or a later one.

    Those of many partitions are one commit, but each keyed one is its own, as it takes a run.
    """
    check_writable(log.files)
    starts: dict[str, dict[int, int]] = {}
    rows = size = 0
    most = most_together(log)
    for group in cut(plan, lambda each: most if each.topic.settings.keyed else 1, most):
        for each, gone in _trimmed(log, group, lsn, apart):
            starts.setdefault(each.topic.name, {})[each.partition] = each.first
            rows, size = rows + gone[0], size + gone[1]
    return TrimReport(starts, rows, size)


def _trimmed(log: CommitLog, group: Sequence[NewStart], lsn: int, apart: Apart) -> list[_Trimmed]:
    """Commit new starts together, or, if one can't be committed, one by one."""
    entries = [
        TrimEntry(each.topic.id, each.partition, each.start, each.rows, each.size, lsn)
        for each in group
    ]
    if len(group) > 1:
        with suppress(ConflictError, NotFoundError):
            log.commit([Unit((entry,)) for entry in entries])
            return [(each, (each.rows, each.size)) for each in group]
    done: list[_Trimmed] = []
    for each, entry in zip(group, entries, strict=True):
        with apart(), suppress(ConflictError, NotFoundError):
            # the partition was changed or deleted meanwhile: the next round plans it again
            gone = _committed(log, each.topic, entry)
            if gone is not None:
                done.append((each, gone))
    return done


def _committed(log: CommitLog, topic: Topic, entry: TrimEntry) -> tuple[int, int] | None:
    """Commit a trim; returns the dropped rows and bytes, or None if a keyed partition changed."""
    if not topic.settings.keyed:
        log.commit([Unit((entry,))])
        return entry.rows, entry.size
    allow_trims(log, topic.name)
    begun = begin_queues_at(log, ChunkReader(log.files), topic, entry)
    if begun is None:
        return None
    return entry.rows + begun.old_rows - begun.rows, entry.size + begun.old_size - begun.size
