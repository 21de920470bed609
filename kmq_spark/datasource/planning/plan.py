"""From the ranges of a read to its tasks: those for the archive, and those for the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.options.task_limits import TaskLimits
from kmq_spark.datasource.planning.data_loss import Losses, named, readable
from kmq_spark.datasource.planning.history import BRING_BACK, History, archived_tasks
from kmq_spark.datasource.planning.ranges import OffsetRange
from kmq_spark.datasource.planning.tasks import plan_tasks
from kmq_spark.datasource.planning.topic_ranges import TopicRange, TopicRanges
from kmq_storage.objects.files import Files

if TYPE_CHECKING:
    from kmq_spark.lake.reading import ArchivedRange
    from kmq_spark.lake.record import Span


def plan(
    wanted: Sequence[TopicRanges],
    losses: Losses,
    limits: TaskLimits,
    history: History | None,
    files: Files,
) -> list[InputPartition]:
    """Return the tasks that read these ranges; report what neither archive nor log holds."""
    archived, ranges = held(wanted, losses, history)
    if not archived:
        return [*plan_tasks(ranges, limits, files)]
    of_log = sum(int((each.ends - each.starts).sum()) for each in ranges)
    old = archived_tasks(archived, _share(limits, sum(r.end - r.start for r in archived), of_log))
    if limits.min_partitions is not None:
        limits = replace(limits, min_partitions=max(limits.min_partitions - len(old), 1))
    return [*old, *plan_tasks(ranges, limits, files)]


def held(
    wanted: Sequence[TopicRanges], losses: Losses, history: History | None
) -> tuple[list[ArchivedRange], list[TopicRanges]]:
    """Divide ranges into those of the archive and those of the log; report what neither holds."""
    if history is None:
        return [], [_readable(each, losses, None) for each in wanted]
    archived, rest = history.split(each for several in wanted for each in several)
    for each in archived:
        _report_missing(each, history.archive.missing, losses)
        _report_holes(each, history.absent(each), losses)
    return archived, [_readable(each, losses, history) for each in _by_topic(rest)]


def _report_missing(archived: ArchivedRange, missing: Sequence[str], losses: Losses) -> None:
    """Report files that are gone: which offsets they had is known from the others at most."""
    if missing:
        url = archived.place.url
        told = f"archive {url} lacks {named(missing)}, which its job had written; {BRING_BACK}"
        losses.report(told, archived.topic_id, (), topic=archived.topic)


def _report_holes(archived: ArchivedRange, absent: Sequence[Span], losses: Losses) -> None:
    """Report what the archiver passed over with `fail_on_data_loss=False`, and what is gone."""
    url = archived.place.url
    holes = [(span, "were lost before they were archived") for span in archived.lost]
    holes += [(span, f"are in no file of archive {url} any more; {BRING_BACK}") for span in absent]
    place = OffsetRange(archived.topic, archived.partition, archived.start, archived.end)
    for (start, end), what in holes:
        losses.report(
            f"{place.topic}-{place.partition}: offsets {start} to {end - 1} {what}",
            archived.topic_id,
            [place.between(start, end)],
            topic=place.topic,
            partition=place.partition,
            start=start,
            end=end,
        )


def _share(limits: TaskLimits, archived: int, of_log: int) -> TaskLimits:
    """The limits with the archive's share of the fewest tasks, by records, rounded up."""
    if limits.min_partitions is None:
        return limits
    share = -(-limits.min_partitions * archived // max(archived + of_log, 1))
    return replace(limits, min_partitions=max(share, 1))


def _by_topic(ranges: Iterable[TopicRange]) -> list[TopicRanges]:
    runs = groupby(ranges, lambda each: each.topic)
    return [TopicRanges.of(topic, [each.offsets for each in run]) for topic, run in runs]


def _readable(wanted: TopicRanges, losses: Losses, history: History | None) -> TopicRanges:
    """The parts of these ranges that the log holds."""
    doubtful = wanted.doubtful
    if not doubtful.any():
        return wanted
    parts = [
        part.offsets
        for each, doubt in zip(wanted, doubtful.tolist(), strict=True)
        for part in (readable(each, losses, history) if doubt else [each])
    ]
    return TopicRanges.of(wanted.topic, parts)
