"""Sealing: records move from the commit log and from staged files into segments.

Planning is pure and reads only the manifest's rows. Each planned segment is written, synced, and
then committed in place of the rows. Binding refuses this commit when the partition's layout changed
since the plan. Offsets, order and content of the records stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from kmq_storage import limits
from kmq_storage.cutting import cut
from kmq_storage.errors import CorruptionError, IllegalStateError
from kmq_storage.format.layout_entries import SegmentEntry
from kmq_storage.format.manifest import LOG, SEGMENT, STAGED, Row, Rows, weight_of
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.index.offset_index import IsWanted
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.candidates import wanted_rows
from kmq_storage.maintenance.manner import PLAIN, Manner
from kmq_storage.maintenance.replacement import FULL_SHARE, Records, Replacement
from kmq_storage.maintenance.reports import SealReport
from kmq_storage.maintenance.segments import Replacer, Written

#: Replacements whose segments are written together, and what waits until these are on disk.
Group: TypeAlias = list[Replacement]
_Written: TypeAlias = Callable[[], list[SegmentEntry]]
#: A replacement and its segment, or None when the partition changed meanwhile.
_Done: TypeAlias = tuple[Replacement, SegmentEntry | None]

#: The entry of a segment takes fewer bytes, and a commit of many has to fit into a log file.
_ENTRY_BYTES = 256


def plan_seal(
    state: StoreState,
    *,
    only: tuple[str, int] | None = None,
    segment_bytes: int | None = None,
    older_than: int | None = None,
    staged: bool = True,
) -> Iterator[Replacement]:
    """Plan what to seal: every run of unsealed rows, cut into segments of `segment_bytes`.

    - **only**: plan for one partition (topic and number) instead of all.
    - **segment_bytes**: defaults to `full_bytes` of each topic.
    - **older_than** (UTC us): a run that does not fill a segment waits until its oldest commit is
      older than this.
    - **staged**: if False, only rows in the commit log are planned, and none in staged files.
    """
    lsn = state.lsn  # read before planning: commits that are applied meanwhile then conflict
    unsealed = _unsealed if staged else _in_the_log
    for topic, number in _with(unsealed, state) if only is None else _found(state, *only):
        part, wanted = topic.partition(number), unsealed(topic)
        most = full_bytes(topic) if segment_bytes is None else segment_bytes
        weigh = _to_sort if topic.settings.keyed else weight_of
        for rows in topic.index(number).runs(part.start, part.end, wanted):
            for run, whole in _segments(rows, most, weigh):
                if whole or older_than is None or run[0].time < older_than:
                    yield Replacement(topic, number, tuple(run), lsn)


def full_bytes(topic: Topic) -> int:
    """The bytes of a full segment; more in a keyed topic, whose segments are then merged less."""
    return limits.RUN_BYTES if topic.settings.keyed else limits.SEGMENT_BYTES


def partitions_of(state: StoreState) -> list[tuple[Topic, int]]:
    """Every partition of every topic."""
    topics = list(state.topics.values())
    return [(topic, number) for topic in topics for number in range(topic.partitions)]


def _found(state: StoreState, name: str, number: int) -> list[tuple[Topic, int]]:
    topic = state.find_topic(name)
    return [] if topic is None else [(topic, number)]  # None: it was deleted meanwhile


def _with(unsealed: Callable[[Topic], IsWanted], state: StoreState) -> Iterator[tuple[Topic, int]]:
    """The partitions that may have unsealed rows."""
    topics = list(state.topics.values())
    counts = {wanted: wanted_rows(state, wanted) for wanted in {*map(unsealed, topics)}}
    for topic in topics:
        found = counts[unsealed(topic)]
        yield from ((topic, n) for n in range(topic.partitions) if found.get((topic.id, n)))


def _unsealed(topic: Topic) -> IsWanted:
    """Tells which rows are to be sealed; in a keyed topic, also segments that are no runs."""
    return _is_no_run if topic.settings.keyed else _is_no_segment


def _is_no_segment(rows: Row | Rows) -> Any:
    return rows.kind != SEGMENT


def _is_no_run(rows: Row | Rows) -> Any:
    return np.logical_not(rows.in_run)


def _in_the_log(_: Topic) -> IsWanted:
    return _is_in_the_log


def _is_in_the_log(rows: Row | Rows) -> Any:
    return rows.kind == LOG


def _segments(
    rows: Iterable[Row], most: int, size_of: Callable[[Row], int]
) -> Iterator[tuple[list[Row], bool]]:
    """The rows of each segment, and whether the segment is full, as no more rows would fit."""
    runs, full = list(cut(rows, size_of, most)), min(most, limits.SEGMENT_BYTES)
    for run in runs:
        yield run, run is not runs[-1] or sum(map(weight_of, run)) >= full


def _to_sort(row: Row) -> int:
    """The weight of a row of a keyed topic, whose records are sorted.

    Small batches are joined in memory, so they weigh more than mapped ones. Many short records
    weigh by their number, since sorting needs some memory for each.
    """
    is_mapped = row.kind == STAGED and row.rows >= limits.BATCH_ROWS_MAX // FULL_SHARE
    weight = row.weight if is_mapped else row.weight * limits.RUN_BYTES // limits.SEGMENT_BYTES
    return max(weight, row.rows * limits.RUN_BYTES // limits.SORTED_ROWS_MAX)


def seal(
    log: CommitLog, plan: Iterable[Replacement], *, manner: Manner = PLAIN, at_once: int = 1
) -> SealReport:
    """Carry out a plan; `at_once` groups of segments are written in parallel.

    The segments of a group are synced together, and named by one commit. If one of them can't be
    written or committed, the others are, one by one.
    """
    segments = rows = size = conflicts = 0
    for _, entry in carried_out(log, plan, manner=manner, at_once=at_once):
        if entry is None:
            conflicts += 1
        else:
            segments, rows, size = segments + 1, rows + entry.rows, size + entry.length
    return SealReport(segments, rows, size, conflicts)


def carried_out(
    log: CommitLog, plan: Iterable[Replacement], *, manner: Manner, at_once: int = 1
) -> Iterator[_Done]:
    """Carry out replacements in groups, and return them; damaged ones are left out."""
    replacer = Replacer(log, manner.rest)
    groups = together(plan, most_together(log))
    with closing(_begun(log, replacer, groups, at_once)) as begun:
        for group, written in begun:
            yield from _put(replacer, group, written, ChunkReader(log.files), manner)


def most_together(log: CommitLog) -> int:
    """The most segments that one commit may name."""
    return max(min(limits.STAGED_TOGETHER, log.identity.log_file_bytes // _ENTRY_BYTES), 1)


def rows_weight(replaced: Replacement) -> int:
    """The bytes of the rows that are to be replaced."""
    return sum(map(weight_of, replaced.rows))


def together(
    plan: Iterable[Replacement],
    most: int = limits.STAGED_TOGETHER,
    *,
    weigh: Callable[[Replacement], int] = rows_weight,
) -> Iterator[Group]:
    """Groups of at most `most` small segments; a large one is a group by itself.

    What was planned before an error is returned before it is raised.
    """
    group: Group = []
    weight = 0
    try:
        for each in plan:
            own = weigh(each)
            if group and (len(group) == most or weight + own > limits.WRITE_BYTES):
                yield group
                group, weight = [], 0
            group.append(each)
            weight += own
    except CorruptionError:
        if group:
            yield group
        raise
    if group:
        yield group


def _begun(
    log: CommitLog, replacer: Replacer, groups: Iterable[Group], at_once: int
) -> Generator[tuple[Group, _Written]]:
    """Each group with its segments, which are being written; unused segments are removed."""

    def new(group: Group) -> Iterator[tuple[Replacement, Records]]:
        reader = ChunkReader(log.files)
        return ((each, each.merged(reader)) for each in group)

    if at_once == 1:
        yield from ((each, partial(replacer.write_together, new(each))) for each in groups)
        return
    begun: deque[tuple[Group, _Written]] = deque()
    with ThreadPoolExecutor(at_once, "kmq-seal") as pool:
        try:
            for each in groups:
                begun.append((each, pool.submit(replacer.write_together, new(each)).result))
                if len(begun) == at_once:
                    yield begun.popleft()
            while begun:
                yield begun.popleft()
        finally:
            for _, written in begun:
                replacer.give_up(written)


def _put(
    replacer: Replacer, group: Group, written: _Written, reader: ChunkReader, manner: Manner
) -> list[_Done]:
    """Commit a group."""
    ways: list[Written] = [lambda: written()[0]]
    if len(group) > 1:
        try:
            entries = written()
        except (CorruptionError, IllegalStateError):  # so no file of the group is there
            ways = [partial(_write, replacer, each, reader) for each in group]
        else:
            if replacer.put_together(group, entries):
                return [*zip(group, entries, strict=True)]
            ways = [partial(_itself, entry) for entry in entries]
    done: list[_Done] = []
    for replaced, way in zip(group, ways, strict=True):
        with manner.apart():
            done.append((replaced, replacer.put(replaced, way)))
    return done


def _write(replacer: Replacer, replaced: Replacement, reader: ChunkReader) -> SegmentEntry:
    return replacer.write(replaced, replaced.merged(reader))


def _itself(entry: SegmentEntry) -> SegmentEntry:
    return entry
