"""What a streaming read does next: pure functions of the store's state and the last offset.

`next_end` decides how far the next micro-batch goes, `ranges_between` what a batch from one
offset to another reads, also when Spark replays a batch of an earlier run.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kmq_spark.datasource.admission import admit
from kmq_spark.datasource.bounds import EARLIEST, GROUP
from kmq_spark.datasource.coverage import Coverage, check_whole, cover, first_of_stream
from kmq_spark.datasource.data_loss import readable, readable_parts, report_loss
from kmq_spark.datasource.offsets import Positions, StreamOffset
from kmq_spark.datasource.options import SourceOptions
from kmq_spark.datasource.ranges import OffsetRange
from kmq_spark.datasource.tasks import TopicRange
from kmq_storage.log.state import StoreState


def log_end(state: StoreState, options: SourceOptions) -> StreamOffset:
    """The offset after everything that is in the log now."""
    coverage = cover(state, options)
    return StreamOffset(positions=coverage.ends(), ids=coverage.ids)


def next_end(
    state: StoreState,
    options: SourceOptions,
    start: StreamOffset,
    *,
    limit: int | None,
    final: StreamOffset | None = None,
) -> StreamOffset:
    """Where the micro-batch that begins at `start` ends: `start` itself when nothing is new.

    At most `limit` records, and never beyond `final`, the fixed end of an AvailableNow run.
    """
    _report_lost_topics(state, start.ids or {}, fail=options.fail_on_data_loss)
    coverage = cover(state, options)
    begins = _begins(state, options, coverage, start)
    waiting = [
        readable(each, fail_on_data_loss=options.fail_on_data_loss)
        for each in coverage.ranges(begins, _ends(state, coverage, begins, final))
    ]
    taken = _admitted([each.offsets for each in waiting], limit)
    if not any(offsets.size for offsets in taken):
        check_whole(state, coverage)
        if not start.is_start or _is_resolved_the_same_later(options):
            return start
    return StreamOffset(
        positions=_nested(coverage, {(each.topic, each.partition): each.end for each in taken}),
        ids=coverage.ids,
        first=_nested(coverage, {(each.topic, each.partition): each.start for each in taken})
        if start.is_start
        else None,
    )


def ranges_between(
    state: StoreState, start: StreamOffset, end: StreamOffset, *, fail_on_data_loss: bool
) -> list[TopicRange]:
    """What a batch between two offsets reads; topics that are gone by now are reported."""
    if end.ids is None:
        return []
    _report_lost_topics(state, end.ids, fail=fail_on_data_loss)
    ranges = []
    for name, topic_id in end.ids.items():
        topic = state.topic_by_id(topic_id.bytes)
        if topic is None:
            continue
        ends = end.positions.get(name, {})
        begins = (
            (end.first or {}).get(name, {})
            if start.is_start
            else _known_positions(start, name, topic_id, ends)
        )
        wanted = [OffsetRange(name, p, begins.get(p, 0), ends[p]) for p in ends]
        ranges += [
            part
            for each in wanted
            if each.size
            for part in readable_parts(TopicRange(topic, each), fail_on_data_loss=fail_on_data_loss)
        ]
    return ranges


def _admitted(waiting: Sequence[OffsetRange], limit: int | None) -> list[OffsetRange]:
    if limit is None:
        return list(waiting)
    shares = admit(
        {each: each.size for each in waiting}, limit, turn=sum(each.start for each in waiting)
    )
    return [replace(each, end=each.start + shares[each]) for each in waiting]


def _nested(
    coverage: Coverage, offsets: Mapping[tuple[str, int], int]
) -> dict[str, dict[int, int]]:
    nested: dict[str, dict[int, int]] = {name: {} for name in coverage.topics}
    for (topic, partition), offset in offsets.items():
        nested[topic][partition] = offset
    return nested


def _is_resolved_the_same_later(options: SourceOptions) -> bool:
    # Any other start means something else tomorrow: it must get into the checkpoint, and only
    # a batch brings it there, though it is empty.
    return options.starting is not None and options.starting.word in (EARLIEST, GROUP)


def _report_lost_topics(
    state: StoreState, ids: Mapping[str, uuid.UUID], *, fail: bool, why: str = ""
) -> None:
    for name, topic_id in ids.items():
        if state.topic_by_id(topic_id.bytes) is None:
            again = " and made again" if state.find_topic(name) else ""
            report_loss(
                f"Topic[{name}] with id {topic_id} was deleted{again}{why}",
                fail=fail,
                topic=name,
                topic_id=str(topic_id),
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


def _ends(
    state: StoreState, coverage: Coverage, begins: Positions, final: StreamOffset | None
) -> Positions:
    ends = coverage.ends()
    if final is None:
        return ends
    # The run promised to reach this end, so it can't go on without a topic, whatever
    # failOnDataLoss says; the next run fixes a new end.
    fixed = final.ids or {}
    _report_lost_topics(state, fixed, fail=True, why=" while an AvailableNow run was reading it")
    return {
        name: {
            p: min(end, final.positions[name].get(p, begins[name][p]))
            if name in fixed
            else begins[name][p]
            for p, end in offsets.items()
        }
        for name, offsets in ends.items()
    }
