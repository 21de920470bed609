"""Sealing: records move from the commit log, and staged files, into segments of their partition.

The plan is a pure look at the manifest's rows. The executor writes a segment, brings it to disk,
and commits it in place of the rows; binding refuses that commit when the partition was laid out
anew since the plan. Offsets, order and content stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from kmq_storage import limits
from kmq_storage.cutting import cut
from kmq_storage.format.manifest import LOG, SEGMENT, Page, Row, weight_of
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.offset_index import Wanted
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic
from kmq_storage.maintenance.damaged import Apart
from kmq_storage.maintenance.replacement import Replacement
from kmq_storage.maintenance.reports import SealReport
from kmq_storage.maintenance.segments import Replacer


def plan_seal(
    state: StoreState,
    *,
    only: tuple[str, int] | None = None,
    segment_bytes: int = limits.SEGMENT_BYTES,
    older_than: int | None = None,
    staged: bool = True,
) -> Iterator[Replacement]:
    """What to seal: every run of unsealed rows, cut where a segment would grow too large.

    Of all partitions, or of one topic's partition only.
    With `older_than` (UTC us) a run that would make less than a whole segment waits until its
    oldest commit is older than that. Unless `staged`, only what stands in the log itself.
    """
    lsn = state.lsn  # before: what a thread applies meanwhile makes it a conflict
    for topic, number in partitions_of(state) if only is None else _found(state, *only):
        part = topic.partition(number)
        wanted = _unsealed(topic) if staged else _is_in_the_log
        unsealed = topic.index(number).runs(part.start, part.end, wanted)
        for run, whole in (each for rows in unsealed for each in _segments(rows, segment_bytes)):
            if whole or older_than is None or run[0].time < older_than:
                yield Replacement(topic, number, tuple(run), lsn)


def partitions_of(state: StoreState) -> list[tuple[Topic, int]]:
    """Every partition there is."""
    topics = list(state.topics.values())
    return [(topic, number) for topic in topics for number in range(topic.partitions)]


def _found(state: StoreState, name: str, number: int) -> list[tuple[Topic, int]]:
    topic = state.find_topic(name)
    return [] if topic is None else [(topic, number)]  # it may have been deleted meanwhile


def _unsealed(topic: Topic) -> Wanted:
    """What is not sealed; of a keyed topic also what was sealed in the order of offsets."""
    return _is_no_run if topic.settings.keyed else _is_no_segment


def _is_no_segment(rows: Row | Page) -> Any:
    return rows.kind != SEGMENT


def _is_no_run(rows: Row | Page) -> Any:
    return np.logical_not(rows.in_run)


def _is_in_the_log(rows: Row | Page) -> Any:
    return rows.kind == LOG


def _segments(rows: Iterable[Row], segment_bytes: int) -> Iterator[tuple[list[Row], bool]]:
    """Runs of rows that make a segment each, and whether that is full: no more would fit in."""
    runs = list(cut(rows, weight_of, segment_bytes))
    for run in runs:
        yield run, run is not runs[-1] or sum(map(weight_of, run)) >= segment_bytes


def seal(log: CommitLog, plan: Iterable[Replacement], *, apart: Apart = nullcontext) -> SealReport:
    """Carry out a plan, a segment at a time."""
    segments = rows = size = conflicts = 0
    reader, replacer = ChunkReader(log.files), Replacer(log)
    for replaced in plan:
        with apart():
            entry = replacer.replace(replaced, replaced.slices(reader))
            if entry is None:
                conflicts += 1
            else:
                segments, rows, size = segments + 1, rows + entry.rows, size + entry.length
    return SealReport(segments, rows, size, conflicts)
