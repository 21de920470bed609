"""Compaction: segments are rewritten, without superseded records or just into fewer files.

In a topic with `cleanup="compact"` the newest record of each key stays; a tombstone goes, too,
once it is old enough for every reader to have met it. Offsets and order stay. Older segments are
replaced first, so a tombstone never goes before what it deletes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kmq_storage import limits
from kmq_storage.cutting import cut
from kmq_storage.format.manifest import SEGMENT, Page, Row, weight_of
from kmq_storage.format.records import COMPACTED, offsets_of, with_offsets
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import planning
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.scan import Slice
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic
from kmq_storage.maintenance.reports import CompactReport, all_compacted
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.maintenance.segments import Replacement, Replacer
from kmq_storage.maintenance.survivors import Survivors, newest_of_each_key

if TYPE_CHECKING:
    import numpy.typing as npt


def plan_merges(
    topic: Topic,
    lsn: int,
    *,
    partitions: Iterable[int] | None = None,
    fewest: int = 2,
    segment_bytes: int = limits.SEGMENT_BYTES,
) -> Iterator[Replacement]:
    """Neighbouring segments of a topic, `fewest` or more, that fit into one."""
    for number in range(topic.partitions) if partitions is None else partitions:
        part = topic.partition(number)

        def is_small(rows: Row | Page) -> Any:
            return (rows.kind == SEGMENT) & (rows.weight < segment_bytes // 2)

        for small in topic.index(number).runs(part.start, part.end, is_small):
            for run in cut(small, weight_of, segment_bytes):
                if len(run) >= fewest:
                    yield Replacement(topic, number, tuple(run), lsn)


def merge(log: CommitLog, plan: Iterable[Replacement]) -> CompactReport:
    """Carry out merges."""
    before = after = conflicts = 0
    reader, replacer = ChunkReader(log.disk), Replacer(log)
    for replaced in plan:
        if replacer.replace(replaced, replaced.slices(reader)) is None:
            conflicts += 1
        else:
            before, after = before + len(replaced.rows), after + 1
    return CompactReport(before, after, 0, conflicts)


def compact_keys(
    log: CommitLog,
    topic: Topic,
    lsn: int,
    *,
    partitions: Iterable[int] | None = None,
    segment_bytes: int = limits.SEGMENT_BYTES,
) -> CompactReport:
    """Keep the newest record of each key in the sealed part of a topic, as of a state's LSN.

    Tombstones that were committed `limits.TOMBSTONE_DELAY` ago go, too.
    """
    numbers = range(topic.partitions) if partitions is None else partitions
    rows = {number: _sealed_rows(topic, number) for number in numbers}
    return all_compacted(
        _compact_partition(log, Replacement(topic, number, tuple(sealed), lsn), segment_bytes)
        for number, sealed in rows.items()
        if sealed
    )


def compact_topic(log: CommitLog, name: str) -> CompactReport:
    """Compact a topic with all that is in it now: what is not sealed yet is sealed first."""
    if log.refresh().topic(name).settings.cleanup == "compact":
        planning(log, lambda state: _seal_topic(log, state, name))
        return planning(log, lambda state: compact_keys(log, state.topic(name), state.lsn))
    return planning(log, lambda state: merge(log, plan_merges(state.topic(name), state.lsn)))


def _seal_topic(log: CommitLog, state: StoreState, name: str) -> None:
    topic = state.topic(name)
    seal(log, (each for each in plan_seal(state) if each.topic is topic))


def worth_compacting(topic: Topic) -> bool:
    """Whether enough of a topic that keeps the newest of each key was never compacted."""
    if topic.settings.cleanup != "compact":
        return False

    def sealed(rows: Row | Page) -> Any:
        return rows.kind == SEGMENT

    def compacted(rows: Row | Page) -> Any:
        return (rows.kind == SEGMENT) & rows.compacted

    whole = done = 0
    for number, part in enumerate(topic.parts):
        whole += topic.index(number).weight(part.start, part.end, sealed)
        done += topic.index(number).weight(part.start, part.end, compacted)
    return whole - done > limits.DIRTY_SHARE * whole


def _compact_partition(log: CommitLog, whole: Replacement, segment_bytes: int) -> CompactReport:
    reader, replacer = ChunkReader(log.disk), Replacer(log)
    old = log.environment.now_us() - round(limits.TOMBSTONE_DELAY * 1e6)
    slices = ((part, row.time < old) for row, part in _by_segment(whole, reader))
    survivors = newest_of_each_key(slices, whole.span, rows=sum(row.rows for row in whole.rows))
    before = after = dropped = 0
    for run in _runs(whole.rows, survivors, segment_bytes):
        replaced = replace(whole, rows=tuple(run))
        untouched = replaced.span[0] == run[0].base_offset  # no trim cut it
        if len(run) == 1 and untouched and survivors.count(*replaced.span) == run[0].rows:
            if not run[0].compacted:
                replacer.mark(replaced, COMPACTED)  # that there is nothing to drop
            continue
        entry = replacer.replace(replaced, _kept(replaced, reader, survivors), COMPACTED)
        if entry is None:  # what comes later relies on this
            return CompactReport(before, after, dropped, 1)
        before, after = before + len(run), after + 1
        dropped += entry.old_rows - entry.rows
    return CompactReport(before, after, dropped)


def _sealed_rows(topic: Topic, number: int) -> list[Row]:
    """The segments of a partition up to the first records that are not sealed."""
    part = topic.partition(number)
    rows = topic.index(number).rows(part.start, part.end)
    return list(takewhile(lambda row: row.kind == SEGMENT, rows))


def _runs(rows: Iterable[Row], survivors: Survivors, segment_bytes: int) -> Iterator[list[Row]]:
    """Runs that make one segment each."""
    run: list[Row] = []
    size = 0
    for row in rows:
        kept = survivors.count(row.base_offset, row.end_offset)
        left = row.weight * kept // max(row.rows, 1)
        if run and size + left > segment_bytes:
            yield run
            run, size = [], 0
        run.append(row)
        size += left
    if run:
        yield run


def _by_segment(replaced: Replacement, reader: ChunkReader) -> Iterator[tuple[Row, Slice]]:
    for row in replaced.rows:
        for part in replace(replaced, rows=(row,)).slices(reader):
            yield row, part


def _kept(replaced: Replacement, reader: ChunkReader, survivors: Survivors) -> Iterator[Slice]:
    for part in replaced.slices(reader):
        yield _filtered(part, survivors.of(part.offsets()))


def _filtered(part: Slice, keep: npt.NDArray[np.bool_]) -> Slice:
    if keep.all():
        return part
    batch = part.batch
    if offsets_of(batch) is None:
        batch = with_offsets(batch, pa.array(part.offsets()))
    return replace(part, batch=batch.filter(pa.array(keep)))
