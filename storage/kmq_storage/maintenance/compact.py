"""Compaction: segments are rewritten without superseded records, or merged into fewer files.

In a topic with `cleanup="compact"`, the newest record of each key stays. A tombstone is dropped
once it is so old that every reader has met it. Offsets and order stay. Older segments are replaced
first, so a tombstone is never dropped before the records that it deletes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any

import numpy as np

from kmq_storage import limits
from kmq_storage.cutting import cut, grown
from kmq_storage.errors import CorruptionError, IllegalStateError
from kmq_storage.format.layout_entries import NO_TOMBSTONES
from kmq_storage.format.manifest import SEGMENT, Key, Row, Rows, weight_of
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.index.offset_index import IsWanted
from kmq_storage.log.moving import planning
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import Slice
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.ages import cautious_now
from kmq_storage.maintenance.manner import PLAIN, Manner, Rest
from kmq_storage.maintenance.replacement import Replacement
from kmq_storage.maintenance.reports import CompactReport, all_compacted, replacing
from kmq_storage.maintenance.seal import (
    carried_out,
    full_bytes,
    most_together,
    plan_seal,
    rows_weight,
    seal,
    together,
)
from kmq_storage.maintenance.segment_files import tombstone_second
from kmq_storage.maintenance.segments import Compacted, Replacer
from kmq_storage.maintenance.survivors import Survivors, newest_of_each_key
from kmq_storage.maintenance.thinning import thin


def plan_merges(
    topic: Topic,
    lsn: int,
    *,
    partitions: Iterable[int] | None = None,
    times: float = 1,
    final: float | None = None,
    segment_bytes: int | None = None,
    now: int,
) -> Iterator[Replacement]:
    """Plan merges of neighbouring segments into one that is at least `times` as large as each.

    `final` times are enough when the next neighbour would make the segment too large. Merged
    segments of a keyed topic are larger, so that the messages of a queue are in few of them. `now`
    (UTC us) decides which ends of queues are old enough to be dropped.
    """
    old = now - round(limits.TOMBSTONE_DELAY * 1e6)
    most = full_bytes(topic) if segment_bytes is None else segment_bytes
    grows = most / (final or max(times, 2))
    for number in range(topic.partitions) if partitions is None else partitions:
        part = topic.partition(number)

        def is_small(rows: Row | Rows) -> Any:
            return (rows.kind == SEGMENT) & (rows.weight < grows)

        for small in topic.index(number).runs(part.start, part.end, is_small):
            for run in grown(small, weight_of, most, times=times, final=final):
                yield Replacement(topic, number, tuple(run), lsn, ends_before=old)


def merge(log: CommitLog, plan: Iterable[Replacement], *, manner: Manner = PLAIN) -> CompactReport:
    """Carry out planned merges."""
    done = carried_out(log, plan, manner=manner)
    return all_compacted(replacing(len(replaced.rows), entry) for replaced, entry in done)


def compact_keys(
    log: CommitLog,
    topic: Topic,
    lsn: int,
    *,
    partitions: Iterable[int] | None = None,
    segment_bytes: int = limits.SEGMENT_BYTES,
    manner: Manner = PLAIN,
) -> CompactReport:
    """Keep only the newest record of each key in the sealed part of a topic.

    `lsn` is that of the state that the topic is from. Tombstones that were committed at least
    `limits.TOMBSTONE_DELAY` ago are dropped, too.
    """
    numbers = range(topic.partitions) if partitions is None else partitions
    sealed = [(number, _sealed_rows(topic, number)) for number in numbers]
    wholes = (Replacement(topic, number, tuple(rows), lsn) for number, rows in sealed if rows)
    compaction = _Compaction(log, segment_bytes, manner)
    groups = together(wholes, most_together(log), weigh=_memory_of)
    return all_compacted(report for group in groups for report in compaction.of(group))


def compact_topic(log: CommitLog, name: str) -> CompactReport:
    """Compact a topic now; where this drops records, unsealed ones are sealed first."""
    settings = log.refresh().topic(name).settings
    if settings.keyed or settings.cleanup == "compact":
        planning(log, lambda state: _seal_topic(log, state, name))
    if settings.cleanup == "compact":
        return planning(log, lambda state: compact_keys(log, state.topic(name), state.lsn))
    merged = planning(log, lambda state: _merge_topic(log, state, name))
    thinned = planning(log, lambda state: thin(log, state.topic(name), state.lsn))
    return all_compacted([merged, thinned])


def _seal_topic(log: CommitLog, state: StoreState, name: str) -> None:
    topic = state.topic(name)
    seal(log, (each for each in plan_seal(state) if each.topic is topic))


def _merge_topic(log: CommitLog, state: StoreState, name: str) -> CompactReport:
    now = log.environment.now_us()
    return merge(log, plan_merges(state.topic(name), state.lsn, now=now))


def is_sealed(rows: Row | Rows) -> Any:
    """Selects segments."""
    return rows.kind == SEGMENT


def is_dirty(rows: Row | Rows) -> Any:
    """Selects segments whose keys were never compacted."""
    return np.logical_and(rows.kind == SEGMENT, np.logical_not(rows.compacted))


def worth_compacting(topic: Topic, dirty: Mapping[Key, int] | None = None) -> bool:
    """Whether enough of a topic with `cleanup="compact"` was never compacted.

    `dirty`: how many such segments each partition has, at most, as far as that is known.
    """
    if topic.settings.cleanup != "compact":
        return False
    numbers = range(topic.partitions)
    known = [n for n in numbers if dirty is None or dirty.get((topic.id, n))]
    new, whole = sum(_weight(topic, number, is_dirty) for number in known), 0
    for number in numbers:
        if new <= limits.DIRTY_SHARE * whole:
            return False
        whole += _weight(topic, number, is_sealed)
    return new > limits.DIRTY_SHARE * whole


def _weight(topic: Topic, number: int, wanted: IsWanted) -> int:
    part = topic.partition(number)
    return topic.index(number).weight(part.start, part.end, wanted)


def with_old_tombstones(topic: Topic, now: int) -> list[int]:
    """The partitions with tombstones that may go at this time (UTC us), all that were known of."""
    if topic.settings.cleanup != "compact":
        return []
    old = now / 1e6 - limits.TOMBSTONE_DELAY
    return [n for n, part in enumerate(topic.parts) if 0 < part.tombstones < old]


def keep_only(log: CommitLog, whole: Replacement, survivors: Survivors) -> bool:
    """Keep only survivors in rows of a partition; False when it changed meanwhile."""
    reader, replacer = ChunkReader(log.files), Replacer(log)
    for step in (replace(whole, rows=(row,)) for row in whole.rows):  # the oldest first
        if not _is_kept(step, survivors):
            kept = surviving(step, reader, survivors)
            if replacer.replace(step, kept, Compacted(0)) is None:
                return False  # what comes later relies on this
    return True


@dataclass(frozen=True, slots=True)
class _Step:
    """What compaction does to segments of a partition."""

    run: Replacement
    survivors: Survivors
    said: Compacted

    @property
    def is_kept(self) -> bool:
        """Whether the segment stays as it is, and is only marked."""
        return _is_kept(self.run, self.survivors)

    def records(self, reader: ChunkReader) -> Iterator[Slice]:
        """What stays."""
        return surviving(self.run, reader, self.survivors)


class _Compaction:
    """Compacts whole partitions, several with one commit."""

    def __init__(self, log: CommitLog, segment_bytes: int, manner: Manner) -> None:
        self._log, self._manner = log, manner
        self._segment_bytes = segment_bytes
        self._replacer = Replacer(log, manner.rest)

    def of(self, group: Sequence[Replacement]) -> list[CompactReport]:
        """Compact partitions together, or, if that is impossible, one by one."""
        planned: list[list[_Step]] = []
        for whole in group:
            with self._manner.apart():
                planned.append(self._steps(whole))
        done = self._together([*chain.from_iterable(planned)]) if len(planned) > 1 else None
        if done is not None:
            return done
        reports: list[CompactReport] = []
        for steps in planned:
            with self._manner.apart():
                reports += self._one_by_one(steps)
        return reports

    def _steps(self, whole: Replacement) -> list[_Step]:
        reader, rest = ChunkReader(self._log.files), self._manner.rest
        old = _old(self._log, whole.rows)
        slices = ((part, row.time < old) for row, part in _by_segment(whole, reader, rest))
        survivors = newest_of_each_key(slices, whole.span, rows=sum(row.rows for row in whole.rows))
        part = whole.topic.partition(whole.partition)
        waits = tombstone_second(whole.rows) if survivors.tombstones_wait else NO_TOMBSTONES
        rows_of_runs = _runs(whole.rows, survivors, self._segment_bytes)
        runs = [replace(whole, rows=rows) for rows in rows_of_runs]
        steps = [run for run in runs if not (_is_kept(run, survivors) and run.rows[0].compacted)]
        if not steps and part.tombstones not in (0, waits):
            steps = runs[:1]  # to say that they are gone
        return [_Step(run, survivors, Compacted(waits if run is steps[-1] else 0)) for run in steps]

    def _together(self, steps: Sequence[_Step]) -> list[CompactReport] | None:
        """Carry out all steps with one commit; None, and nothing is done, if one is impossible."""
        if not 0 < len(steps) <= most_together(self._log):
            return None
        reader = ChunkReader(self._log.files)
        changed = [step for step in steps if not step.is_kept]
        try:
            entries = self._replacer.compact_together(
                [(step.run, step.records(reader), step.said) for step in changed],
                [(step.run, step.said) for step in steps if step.is_kept],
            )
        except (CorruptionError, IllegalStateError):
            return None
        if entries is None:
            return None
        befores = (len(step.run.rows) for step in changed)
        return [replacing(*each) for each in zip(befores, entries, strict=True)]

    def _one_by_one(self, steps: Iterable[_Step]) -> Iterator[CompactReport]:
        reader = ChunkReader(self._log.files)
        for step in steps:
            if step.is_kept:  # there is nothing to drop
                self._replacer.mark(step.run, step.said)
                continue
            entry = self._replacer.replace(step.run, step.records(reader), step.said)
            yield replacing(len(step.run.rows), entry)
            if entry is None:  # what comes later relies on this
                return


def _memory_of(whole: Replacement) -> int:
    """About the bytes that it takes to compact a partition; two bits per offset are kept."""
    start, end = whole.span
    return rows_weight(whole) + (end - start) // 4


def _old(log: CommitLog, rows: Sequence[Row]) -> int:
    """Tombstones that were committed before this time (UTC us) may go."""
    delay = round(limits.TOMBSTONE_DELAY * 1e6)
    old = log.environment.now_us() - delay
    return cautious_now(log) - delay if any(row.time < old for row in rows) else old


def _is_kept(run: Replacement, survivors: Survivors) -> bool:
    """Whether it is one segment of which every record stays, and none was trimmed away."""
    row = run.rows[0]
    untouched = run.span[0] == row.base_offset
    return len(run.rows) == 1 and untouched and survivors.count(*run.span) == row.rows


def _sealed_rows(topic: Topic, number: int) -> list[Row]:
    """The segments of a partition up to the first records that are not sealed."""
    part = topic.partition(number)
    rows = topic.index(number).rows(part.start, part.end)
    return list(takewhile(lambda row: row.kind == SEGMENT, rows))


def _runs(
    rows: Iterable[Row], survivors: Survivors, segment_bytes: int
) -> Iterator[tuple[Row, ...]]:
    """Runs that make one segment each."""

    def left(row: Row) -> int:
        kept = survivors.count(row.base_offset, row.end_offset)
        return row.weight * kept // max(row.rows, 1)

    return map(tuple, cut(rows, left, segment_bytes))


def _by_segment(
    replaced: Replacement, reader: ChunkReader, rest: Rest
) -> Iterator[tuple[Row, Slice]]:
    for row in replaced.rows:
        for part in replace(replaced, rows=(row,)).slices(reader):
            yield row, part
            rest()


def surviving(replaced: Replacement, reader: ChunkReader, survivors: Survivors) -> Iterator[Slice]:
    """The records of rows that stay."""
    for part in replaced.slices(reader):
        keep = survivors.of(part.offsets())
        yield part if keep.all() else part.taken(np.flatnonzero(keep))
