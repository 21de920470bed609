"""What a streaming read does next: pure functions of the store's state and the last offset.

`next_end` decides how far the next micro-batch goes, `ranges_between` what a batch from one
offset to another reads, also when Spark replays a batch of an earlier run.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from kmq_spark.datasource.admission import Limits, Waiting, take
from kmq_spark.datasource.bounds import EARLIEST, GROUP
from kmq_spark.datasource.coverage import Coverage, check_whole, cover, first_of_stream
from kmq_spark.datasource.data_loss import Losses, deletion, readable, unread
from kmq_spark.datasource.history import History
from kmq_spark.datasource.offsets import Positions, StreamOffset
from kmq_spark.datasource.options import SourceOptions
from kmq_spark.datasource.ranges import OffsetRange
from kmq_spark.datasource.tasks import TopicRange
from kmq_storage.errors import DataLossError
from kmq_storage.format.manifest import weight_in_memory
from kmq_storage.log.offset_index import OffsetIndex
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Partition, Topic

#: What an archived record is taken to weigh where the log has none to compare with.
_ARCHIVED_WEIGHT = 1024


def log_end(state: StoreState, options: SourceOptions) -> StreamOffset:
    """The offset after everything that is in the log now."""
    coverage = cover(state, options)
    return StreamOffset(positions=coverage.ends(), ids=coverage.ids)


def next_end(
    state: StoreState,
    options: SourceOptions,
    start: StreamOffset,
    *,
    limits: Limits,
    losses: Losses,
    final: StreamOffset | None = None,
    history: History | None = None,
) -> StreamOffset:
    """Where the micro-batch that begins at `start` ends: `start` itself when there is none yet.

    At most what the limits allow, and never beyond `final`, the fixed end of an AvailableNow run.
    """
    if final is not None:
        _check_promise(state, start, final)
    _report_deleted(state, start, losses)
    coverage = cover(state, options, history)
    losses.see(coverage.topics.values())
    begins = _begins(state, options, coverage, start)
    first, positions = admitted(
        coverage, (begins, _ends(coverage, begins, final)), limits=limits, losses=losses
    )
    if first == positions:
        check_whole(state, coverage)
        if not start.is_start or _is_resolved_the_same_later(options):
            return start
    return StreamOffset(
        positions=positions, ids=coverage.ids, first=first if start.is_start else None
    )


def admitted(
    coverage: Coverage,
    bounds: tuple[Positions, Positions],
    *,
    limits: Limits,
    losses: Losses,
) -> tuple[Positions, Positions]:
    """The part of what lies between two positions that the log holds and the limits allow."""
    first, waiting = _backlogs(coverage, *bounds, losses)
    positions = {name: dict(offsets) for name, offsets in first.items()}
    turn = sum(sum(offsets.values()) for offsets in first.values())
    for (name, partition), records in take(waiting, limits, turn=turn).items():
        positions[name][partition] += records
    return first, positions


def ranges_between(
    state: StoreState, start: StreamOffset, end: StreamOffset, losses: Losses
) -> list[TopicRange]:
    """What a batch between two offsets wants; topics that are gone by now are reported."""
    ranges: list[TopicRange] = []
    for name, topic_id in (end.ids or {}).items():
        ends = end.positions.get(name, {})
        begins = (
            (end.first or {}).get(name, {})
            if start.is_start
            else _known_positions(start, name, topic_id, ends)
        )
        topic = state.topic_by_id(topic_id.bytes)
        if topic is None:
            losses.report_deleted(state, name, topic_id, begins, ends)
            continue
        changed = [p for p in ends if begins.get(p) != ends[p]]
        wanted = (OffsetRange(name, p, begins.get(p, 0), ends[p]) for p in changed)
        ranges += [TopicRange(topic, each) for each in wanted if each.size]
    return ranges


@dataclass(frozen=True, slots=True)
class _Backlog:
    """The records of a partition that wait, as `admission` sees them."""

    index: OffsetIndex
    start: int
    end: int
    #: What the partition holds: records weigh about the same all over it.
    held: Partition

    @property
    def records(self) -> int:
        return self.end - self.start

    @property
    def about(self) -> int:
        weight = weight_in_memory(self.held.size, self.held.rows)
        return weight * self.records // max(self.held.end - self.held.start, 1)

    def first(self) -> int:
        return self.index.weight_at(self.start)

    def within(self, budget: int) -> tuple[int, int]:
        reached, weight = self.index.within(self.start, self.end, budget)
        return reached - self.start, weight


@dataclass(frozen=True, slots=True)
class _Archived:
    """The records of a partition that wait in the archive: about as heavy as those in the log."""

    records: int
    weight: int

    @property
    def about(self) -> int:
        return self.weight * self.records

    def first(self) -> int:
        return self.weight

    def within(self, budget: int) -> tuple[int, int]:
        records = min(budget // self.weight, self.records)
        return records, records * self.weight


def _backlogs(
    coverage: Coverage, begins: Positions, ends: Positions, losses: Losses
) -> tuple[dict[str, dict[int, int]], dict[tuple[str, int], Waiting]]:
    """Where each partition goes on, and what waits there; what is lost in between is reported."""
    first: dict[str, dict[int, int]] = {}
    waiting: dict[tuple[str, int], Waiting] = {}
    for name, topic in coverage.topics.items():
        first[name] = own = dict(begins[name])
        own_ends = ends[name]
        for p, begin in begins[name].items():
            part, end = topic.parts[p], own_ends[p]
            older = _archived(coverage.history, topic, p, (begin, end))
            if older is not None:
                waiting[name, p] = older
                continue
            if not part.start <= begin <= end <= part.end:
                wanted = TopicRange(topic, OffsetRange(name, p, begin, end))
                inside = readable(wanted, losses).offsets
                own[p], end = inside.start, inside.end
            if end > own[p]:
                waiting[name, p] = _Backlog(topic.index(p), own[p], end, part)
    return first, waiting


def _archived(
    history: History | None, topic: Topic, number: int, span: tuple[int, int]
) -> _Archived | None:
    """What waits in the archive: a batch doesn't go on in the log behind it."""
    part, (begin, end) = topic.parts[number], span
    if history is None or begin >= part.start or begin < history.low(topic, number):
        return None
    end = min(end, history.border(topic, number))
    weight = weight_in_memory(part.size, part.rows) // part.rows if part.rows else _ARCHIVED_WEIGHT
    return _Archived(end - begin, weight) if end > begin else None


def _is_resolved_the_same_later(options: SourceOptions) -> bool:
    # Any other start means something else tomorrow: it must get into the checkpoint, and only
    # a batch brings it there, though it is empty.
    return options.starting is not None and options.starting.word in (EARLIEST, GROUP)


def _report_deleted(state: StoreState, known: StreamOffset, losses: Losses) -> None:
    for name, topic_id in (known.ids or {}).items():
        if state.topic_by_id(topic_id.bytes) is None:
            losses.report_deleted(state, name, topic_id, known.positions.get(name, {}))


def _check_promise(state: StoreState, start: StreamOffset, final: StreamOffset) -> None:
    """An AvailableNow run can't reach its end without a topic, whatever failOnDataLoss says."""
    for name, topic_id in (final.ids or {}).items():
        if state.topic_by_id(topic_id.bytes) is None:
            lost = unread(name, start.positions.get(name, {}), final.positions[name])
            raise DataLossError(
                f"{deletion(state, name, topic_id, lost)}; an AvailableNow run was reading it and "
                "can't reach the end it began with: the next run reads what is there",
                topic=name,
            )


def _begins(
    state: StoreState, options: SourceOptions, coverage: Coverage, start: StreamOffset
) -> Positions:
    if start.is_start:
        return first_of_stream(state, options, coverage)
    return {
        name: _known_positions(start, name, topic.topic_id, coverage.partitions[name])
        for name, topic in coverage.topics.items()
    }


def _known_positions(
    offset: StreamOffset, name: str, topic_id: uuid.UUID, partitions: Iterable[int]
) -> dict[int, int]:
    """Where a batch that begins at an offset begins in one topic: at 0 where it is new."""
    known = offset.positions.get(name, {}) if (offset.ids or {}).get(name) == topic_id else {}
    return {p: known.get(p, 0) for p in partitions}


def _ends(coverage: Coverage, begins: Positions, final: StreamOffset | None) -> Positions:
    ends = coverage.ends()
    if final is None:
        return ends
    fixed = final.ids or {}
    return {
        name: {
            p: min(end, final.positions[name].get(p, begins[name][p]))
            if name in fixed
            else begins[name][p]
            for p, end in offsets.items()
        }
        for name, offsets in ends.items()
    }
