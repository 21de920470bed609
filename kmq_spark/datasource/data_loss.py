"""Records that should be read and are gone: an error, or a warning with failOnDataLoss=false."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import lru_cache

from kmq_spark.datasource.tasks import TopicRange
from kmq_storage.errors import DataLossError

_log = logging.getLogger(__name__)


def report_loss(message: str, *, fail: bool, **facts: object) -> None:
    """Raise DataLossError, or log the same words and let the read go on."""
    if fail:
        raise DataLossError(
            f"{message}; set failOnDataLoss=false to go on with what is there", **facts
        )
    warn_once(f"{message} (failOnDataLoss=false: reading goes on)")


@lru_cache(maxsize=1024)
def warn_once(message: str) -> None:
    """Log a warning that a stream would repeat at every look, several times per second."""
    _log.warning("%s", message)


def readable_parts(wanted: TopicRange, *, fail_on_data_loss: bool) -> list[TopicRange]:
    """The parts of a range that the log holds: without what is outside, and without gaps."""
    inside = readable(wanted, fail_on_data_loss=fail_on_data_loss)
    offsets = inside.offsets
    position, parts = offsets.start, []
    gaps = inside.topic.index(offsets.partition).gaps_between(offsets.start, offsets.end)
    for gap in gaps:
        report_loss(
            f"{offsets.topic}-{offsets.partition}: offsets {gap.start} to {gap.end - 1} were lost "
            f"({gap.reason}) and cut out by a repair",
            fail=fail_on_data_loss,
            topic=offsets.topic,
            partition=offsets.partition,
            start=gap.start,
            end=gap.end,
        )
        parts.append(replace(offsets, start=position, end=max(gap.start, position)))
        position = max(gap.end, position)
    parts.append(replace(offsets, start=min(position, offsets.end)))
    return [TopicRange(inside.topic, part) for part in parts if part.size or not gaps]


def readable(wanted: TopicRange, *, fail_on_data_loss: bool) -> TopicRange:
    """The part of a range that the log holds; what it doesn't is reported as lost."""
    offsets = wanted.offsets
    part = wanted.topic.partition(offsets.partition)
    low, high = part.start, part.end
    start = min(max(offsets.start, low), high)
    end = max(min(offsets.end, high), start)
    if (start, end) == (offsets.start, offsets.end):
        return wanted
    report_loss(
        f"{offsets.topic}-{offsets.partition}: offsets {offsets.start} to {offsets.end} (next) "
        f"were to be read, the log holds {low} to {high}",
        fail=fail_on_data_loss,
        topic=offsets.topic,
        partition=offsets.partition,
        start=offsets.start,
        end=offsets.end,
        available=(low, high),
    )
    return TopicRange(wanted.topic, replace(offsets, start=start, end=end))
