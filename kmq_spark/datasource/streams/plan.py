"""What a streaming read does next: pure functions of the store's state and the last offset.

`next_end` decides how far the next micro-batch goes, `ranges_between` what a batch from one
offset to another reads, also when Spark replays a batch of an earlier run.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from kmq_spark.datasource.offsets import NONE_DELETED, Positions, StreamOffset
from kmq_spark.datasource.options.source_options import SourceOptions
from kmq_spark.datasource.planning.coverage import (
    Coverage,
    check_whole,
    cover,
    ends_of_deleted,
)
from kmq_spark.datasource.planning.data_loss import Losses, deletion, unread
from kmq_spark.datasource.planning.history import History
from kmq_spark.datasource.planning.start_and_end import first_of_stream
from kmq_spark.datasource.planning.topic_ranges import TopicRanges
from kmq_spark.datasource.streams.admission import Limits, take
from kmq_spark.datasource.streams.backlog import Backlog, backlog_of, fits
from kmq_spark.datasource.streams.waiting import WaitingRecords
from kmq_storage.errors import DataLossError
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import queue_of_log


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
    final: StreamOffset | None,
    history: History | None,
) -> tuple[StreamOffset, Sequence[TopicRanges]]:
    """Return where the micro-batch that begins at `start` ends: at `start` if nothing is new.

    It takes at most what the limits allow, and never ends beyond `final`, the fixed end of an
    AvailableNow run. Also returned are the ranges that were looked at, for `partitions`.
    """
    if final is not None:
        _check_final_end(state, start, final)
    deleted = _report_deleted(state, options, start, losses)
    coverage = cover(state, options, history)
    losses.report_missing(coverage.missing)
    left = _left_out(state, coverage, start, losses)
    if start.is_start:
        new, begins = None, first_of_stream(state, options, coverage, losses)
    else:
        new = _new_to_query(state, options, coverage, start)
        begins = _batch_starts(coverage, start, new)
    first, positions, ranges = admitted(
        coverage, (begins, _batch_ends(coverage, begins, final)), limits=limits, losses=losses
    )
    end = StreamOffset(
        positions=positions,
        ids=coverage.ids,
        first=first if start.is_start else new or None,
        left=left,
        deleted=uuid.UUID(bytes=state.gone.last) if state.gone.last else NONE_DELETED,
    )
    if first == positions:
        check_whole(state, coverage)
        # A new, deleted or lost topic gets into the checkpoint by an empty batch. Otherwise the
        # next run would not know, nor notice if the topic is deleted before a record was read. And
        # it would count again what this one has counted of a deleted topic.
        if not deleted and (limits.least or _is_same_place(start, end)):
            return start, ()
    return end, ranges


def _is_same_place(one: StreamOffset, other: StreamOffset) -> bool:
    return (one.ids, one.positions, one.left) == (other.ids, other.positions, other.left)


def admitted(
    coverage: Coverage,
    bounds: tuple[Positions, Positions],
    *,
    limits: Limits,
    losses: Losses,
) -> tuple[Positions, Positions, Sequence[TopicRanges]]:
    """Return the part between two positions that can be read and that the limits allow.

    Also returned are the ranges that were looked at, by topic.
    """
    starts, ends = (dict(each) for each in bounds)
    backlogs: list[Backlog] = []
    for wanted in coverage.unread(starts).ranges(*bounds):
        backlog = backlog_of(wanted, coverage.history, losses)
        if backlog.ranges is not wanted:  # else the bounds stay as they were given
            starts[backlog.topic] = backlog.positions(backlog.ranges.starts)
            ends[backlog.topic] = backlog.positions(backlog.ranges.ends)
        backlogs.append(backlog.filled())
    ranges = [each.ranges for each in backlogs]
    if fits(backlogs, limits):
        return starts, ends, ranges
    turn = sum(sum(offsets.values()) for offsets in starts.values())
    waiting, positions = WaitingRecords(backlogs, limits.bytes), dict(starts)
    for each, counts in waiting.by_topic(take(waiting, limits, turn=turn)):
        more = each.positions(each.ranges.starts + counts)
        positions[each.topic] = {**starts[each.topic], **more}
    return starts, positions, ranges


def ranges_between(
    state: StoreState, start: StreamOffset, end: StreamOffset, losses: Losses
) -> list[TopicRanges]:
    """Return what a batch between two offsets reads; report topics that were deleted since."""
    ranges: list[TopicRanges] = []
    for name, topic_id in (end.ids or {}).items():
        ends, topic = end.positions.get(name, {}), state.topic_by_id(topic_id.bytes)
        begins = (end.first or {}).get(name, {})
        if not start.is_start:
            known = _read_until(start, name, topic_id)
            begins = {**begins, **known} if begins else known
        if topic is None:
            losses.report_deleted(state, name, topic_id, begins, ends)
        elif begins != ends:  # of thousands of topics, few have new records
            there = _ends_there(topic, begins, ends, losses)
            ranges.append(TopicRanges.between(topic, there, begins, there).filled())
    return [each for each in ranges if len(each)]


def _ends_there(
    topic: Topic, begins: Mapping[int, int], ends: Mapping[int, int], losses: Losses
) -> Mapping[int, int]:
    """Return the ends of the partitions that a topic has; report those that a backup lacks."""
    if max(ends, default=0) < topic.partitions:
        return ends
    gone = {p: begins.get(p, 0) for p in ends if p >= topic.partitions}
    losses.report_set_back(topic, gone, unread(topic.name, gone, {p: ends[p] for p in gone}))
    return {p: end for p, end in ends.items() if p not in gone}


def _report_deleted(
    state: StoreState, options: SourceOptions, known: StreamOffset, losses: Losses
) -> bool:
    """Report topics that were deleted since an offset; return whether there are any."""
    deleted = [
        (name, topic_id, known.positions.get(name, {}))
        for name, topic_id in (known.ids or {}).items()
        if state.topic_by_id(topic_id.bytes) is None
    ]
    for name, topic_id, begins in deleted:
        ends = ends_of_deleted(state, options, name, topic_id)
        losses.report_deleted(state, name, topic_id, begins, ends)
    unseen = list(_unseen(state, options, known))
    for lost in unseen:
        losses.report_deleted(state, *lost)
    return bool(deleted or unseen)


def _unseen(
    state: StoreState, options: SourceOptions, known: StreamOffset
) -> Iterator[tuple[str, uuid.UUID, Mapping[int, int], Mapping[int, int]]]:
    """Yield topics that came and went since an offset, and what of them is unread.

    The query has seen none of them, but others may have read them for its group.
    """
    if known.deleted is None:
        return
    seen = {topic_id.bytes for topic_id in (*(known.ids or {}).values(), *known.left)}
    gone = [each for each in state.gone.since(known.deleted.bytes) if each.id not in seen]
    names = {each.name for each in gone if queue_of_log(each.name) is None}
    covered = {*options.subscription.matches(names)}
    for each in gone:
        if each.name in covered:
            topic_id, begins = uuid.UUID(bytes=each.id), each.groups.get(options.group or "", {})
            ends = ends_of_deleted(state, options, each.name, topic_id) or {}
            if unread(each.name, begins, ends):
                yield each.name, topic_id, begins, ends


def _check_final_end(state: StoreState, start: StreamOffset, final: StreamOffset) -> None:
    """DataLossError when an AvailableNow run can't reach its end, whatever failOnDataLoss is."""
    for name, topic_id in (final.ids or {}).items():
        if state.topic_by_id(topic_id.bytes) is None:
            lost = unread(name, start.positions.get(name, {}), final.positions[name])
            raise DataLossError(
                f"{deletion(state, name, topic_id, lost)}; an AvailableNow run was reading it and "
                "can't reach the end it began with: the next run reads what is there",
                topic=name,
            )


def _batch_starts(
    coverage: Coverage, start: StreamOffset, new: Mapping[str, dict[int, int]]
) -> Positions:
    begins = {}
    for name, topic in coverage.topics.items():
        known = _read_until(start, name, topic.topic_id)
        partitions = coverage.partitions[name]
        begins[name] = dict(zip(partitions, map(known.get, partitions, repeat(0)), strict=False))
        begins[name] |= new.get(name, {})
    return begins


def _new_to_query(
    state: StoreState, options: SourceOptions, coverage: Coverage, start: StreamOffset
) -> dict[str, dict[int, int]]:
    """Return where the query begins in partitions that only its group has read so far."""
    found: dict[str, dict[int, int]] = {}
    committed = {} if options.group is None else state.group_offsets(options.group)
    for name, topic in coverage.topics.items():
        group = committed.get(topic.id, {})
        unread = group.keys() - _read_until(start, name, topic.topic_id).keys() if group else ()
        new = {p: group[p] for p in unread if group[p] and p in coverage.partitions[name]}
        if new:
            found[name] = new
    return found


def _read_until(offset: StreamOffset, name: str, topic_id: uuid.UUID) -> Mapping[int, int]:
    """Return how far one topic was read at an offset, also in partitions left out since."""
    left = offset.left.get(topic_id, {})
    if (offset.ids or {}).get(name) != topic_id:
        return left
    known = offset.positions.get(name, {})
    return {**left, **known} if left else known


def _left_out(
    state: StoreState, coverage: Coverage, start: StreamOffset, losses: Losses
) -> dict[uuid.UUID, dict[int, int]]:
    """Return the positions of partitions that the query has read and its options leave out now.

    Partitions that the last batch still covered are reported: the omission may be a mistake. Those
    that the topic no longer has are forgotten: later ones of their numbers have other records.
    """
    covered = {topic.topic_id: coverage.partitions[name] for name, topic in coverage.topics.items()}
    left = {
        topic_id: {p: offsets[p] for p in offsets.keys() - covered.get(topic_id, ())}
        for topic_id, offsets in start.left.items()
    }
    for name, topic_id in (start.ids or {}).items():
        known, topic = start.positions.get(name, {}), state.topic_by_id(topic_id.bytes)
        missing = known.keys() - covered.get(topic_id, ())
        if missing and topic is not None:
            dropped = {p: known[p] for p in sorted(missing)}
            _report_dropped(topic, dropped, losses)
            left[topic_id] = left.get(topic_id, {}) | dropped
    return _still_there(state, left)


def _report_dropped(topic: Topic, dropped: Mapping[int, int], losses: Losses) -> None:
    gone = {p: offset for p, offset in dropped.items() if p >= topic.partitions}
    if gone:
        losses.report_set_back(topic, gone)
    if len(gone) < len(dropped):
        there = {p: offset for p, offset in dropped.items() if p not in gone}
        losses.report_left_out(topic.name, topic.topic_id, there)


def _still_there(
    state: StoreState, left: Mapping[uuid.UUID, Mapping[int, int]]
) -> dict[uuid.UUID, dict[int, int]]:
    found = {}
    for topic_id, offsets in left.items():
        topic = state.topic_by_id(topic_id.bytes)
        count = 0 if topic is None else topic.partitions
        if there := {p: offset for p, offset in offsets.items() if p < count}:
            found[topic_id] = there
    return found


def _batch_ends(coverage: Coverage, begins: Positions, final: StreamOffset | None) -> Positions:
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
