"""Where a read begins and ends: at its options' bounds, or where its group continues."""

from __future__ import annotations

import uuid

from kmq_spark.datasource.offsets import OWN_KEY, Positions
from kmq_spark.datasource.options.bounds import EARLIEST, GROUP, LATEST, Bound, beyond
from kmq_spark.datasource.options.source_options import SourceOptions
from kmq_spark.datasource.planning.coverage import Coverage, ends_of_deleted
from kmq_spark.datasource.planning.data_loss import Losses
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import out_of_range


def known_to_group(state: StoreState, group: str | None) -> set[bytes]:
    """Return the ids of topics in which a group continues, wherever others begin.

    These are the topics that it has read before, also when they were made again since.
    """
    if group is None:
        return set()
    again = (state.find_topic(name) for name in state.gone.left_by(group))
    return {*state.group_offsets(group), *(topic.id for topic in again if topic is not None)}


def first_of_stream(
    state: StoreState, options: SourceOptions, coverage: Coverage, losses: Losses
) -> Positions:
    """Return where a stream without a checkpoint begins: at its group, else as options say."""
    committed = _continued_by_group(state, options, coverage, losses)
    if committed.keys() == coverage.topics.keys():
        return committed
    starting = options.starting or _bound("starting", LATEST)
    _report_foreign(coverage, starting, losses)
    first = coverage.resolve(starting)
    if options.fail_on_data_loss:
        _refuse_beyond_end(coverage, starting, first)
    return first | committed


def bounds_of_batch(
    state: StoreState, options: SourceOptions, coverage: Coverage, losses: Losses
) -> tuple[Positions, Positions]:
    """Return the bounds of a batch read; InvalidRequestError for an end before the start."""
    starting = options.starting or _bound("starting", EARLIEST)
    ending = options.ending or _bound("ending", LATEST)
    coverage.refuse_latest(starting)
    for bound in (starting, ending):
        _report_foreign(coverage, bound, losses)
    starts, ends = coverage.resolve(starting), coverage.resolve(ending)
    if starting.word == GROUP:
        starts |= _continued_by_group(state, options, coverage, losses)
    for topic, offsets in starts.items():
        for partition, start in offsets.items():
            end = ends[topic][partition]
            if start > end:
                raise beyond(starting, ending, (topic, partition), (start, end))
    return starts, ends


def _continued_by_group(
    state: StoreState, options: SourceOptions, coverage: Coverage, losses: Losses
) -> dict[str, dict[int, int]]:
    """Return where the group continues in topics that it knows; new partitions begin at the start.

    A topic that was made again begins anew. What the group had not read of the old ones is lost.
    """
    group = options.group
    if group is None:
        return {}
    offsets, left = state.group_offsets(group), state.gone.left_by(group)
    starts = coverage.starts()
    begins = {}
    for name, topic in coverage.topics.items():
        if topic.id not in offsets and name in left:
            for gone in left[name]:
                gone_id = uuid.UUID(bytes=gone.id)
                ends = ends_of_deleted(state, options, name, gone_id)
                losses.report_deleted(state, name, gone_id, gone.groups.get(group, {}), ends)
        elif topic.id not in offsets:
            continue
        known = offsets.get(topic.id, {})
        begins[name] = {p: known.get(p, starts[name][p]) for p in coverage.partitions[name]}
    return begins


def _refuse_beyond_end(coverage: Coverage, starting: Bound, first: Positions) -> None:
    for name, topic in coverage.topics.items():
        for partition, offset in first[name].items():
            part = topic.partition(partition)
            if offset > part.end:
                error = out_of_range(name, partition, offset, part)
                told = f"option {starting.option!r}: {error.message}"
                raise type(error)(told, **error.context, option=starting.option)


def _report_foreign(coverage: Coverage, bound: Bound, losses: Losses) -> None:
    """Report a bound whose offsets are of another topic of the name, as a loss of that topic."""
    for name, topic_id in coverage.foreign(bound).items():
        losses.report(
            f"{bound.option} has offsets of Topic[{name}] with id {topic_id}, the one that is "
            f"there has id {coverage.topics[name].topic_id}: it was deleted and made again, or is "
            f"in another store (without {OWN_KEY!r}, the numbers count as they are)",
            topic_id,
            (),
            topic=name,
            option=bound.option,
        )


def _bound(side: str, word: str) -> Bound:
    return Bound(option=f"{side}Offsets", word=word)
