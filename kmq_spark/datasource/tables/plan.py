"""Divides into tasks the tables whose rows executors read: `commits` and `segments`."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

from kmq_spark.datasource.executor.commit_rows import CommitsTask
from kmq_spark.datasource.executor.segment_rows import SegmentsTask
from kmq_storage.format.manifest import Key, PageRef
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.live_rows import Cover, covers
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.tables.commit_rows import names_of
from kmq_storage.tables.segment_rows import recent_rows

#: Fewer commits are not worth a task of their own.
_TASK_COMMITS = 2_000
#: Pages of up to 4,096 rows each: fewer are not worth a task of their own.
_TASK_PAGES = 8


def plan_commits(log: CommitLog, state: StoreState) -> list[CommitsTask]:
    """Tasks for the commits up to a state's that are still in the log."""
    oldest = next(log.commits(None), None)
    if oldest is None:
        return []
    names = names_of(state)
    count = state.lsn - oldest.lsn + 1
    tasks = max(1, min(2 * (os.cpu_count() or 1), count // _TASK_COMMITS))
    borders = [oldest.lsn + count * number // tasks for number in range(tasks + 1)]
    return [CommitsTask(begin, end - 1, names) for begin, end in pairwise(borders)]


def plan_segments(state: StoreState) -> list[SegmentsTask]:
    """Tasks for every row of a reader's state."""
    assert state.manifest is not None, "a reader's state has a manifest"
    refs, known = state.manifest.refs, covers(state)
    tasks = max(1, min(4 * (os.cpu_count() or 1), len(refs) // _TASK_PAGES))
    size = -(-len(refs) // tasks)
    runs = [tuple(refs[at : at + size]) for at in range(0, len(refs), size)] if refs else []
    keys = list(known)
    planned = [SegmentsTask(run, _between(known, keys, run)) for run in runs]
    recent = tuple(recent_rows(state))
    return [*planned, *([SegmentsTask((), {}, recent)] if recent else [])]


def _between(
    known: Mapping[Key, Cover], keys: Sequence[Key], run: Sequence[PageRef]
) -> dict[Key, Cover]:
    """Return the facts on the partitions from the first key of these pages to their last."""
    low, high = bisect_left(keys, run[0].first[0]), bisect_right(keys, run[-1].last[0])
    return {key: known[key] for key in keys[low:high]}
