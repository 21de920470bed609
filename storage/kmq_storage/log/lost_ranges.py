"""What damaged commits took of each partition: what of it stands in segments, and what is gone.

Offsets that may have been given out are never given out again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kmq_storage import limits
from kmq_storage.format.manifest import Key, Row
from kmq_storage.log.offset_index import Gap
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic

#: A stored record takes no less: its timestamp.
_ROW_BYTES_MIN = 8


@dataclass(frozen=True, slots=True)
class Unnamed:
    """What stands in files that no commit names which can be read; lost ones may have."""

    #: Records in staged files.
    staged_rows: Mapping[Key, int] = field(default_factory=dict)
    #: Segments, the best first: of overlapping ones the first that fits counts.
    segments: Mapping[Key, Sequence[Row]] = field(default_factory=dict)
    #: How far any segment went, also one that can't be put back.
    ends: Mapping[Key, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CutOut:
    """Offsets of a partition that were given up."""

    topic: str
    partition: int
    gap: Gap


@dataclass(frozen=True, slots=True)
class PutBack:
    """A segment whose records are there again, though the commits that named it are lost."""

    topic: str
    partition: int
    row: Row


@dataclass(frozen=True, slots=True)
class Behind:
    """What becomes of all that damaged commits may have held."""

    put_back: Sequence[PutBack]
    cut: Sequence[CutOut]


def plan_behind(state: StoreState, last: int, unnamed: Unnamed) -> Behind:
    """What of the lost ranges stands in segments, and the gaps around these.

    `last` is the last commit that there was.
    """
    put_back, cut = list[PutBack](), list[CutOut]()
    for lost in lost_ranges(state, last, unnamed):
        topic = state.topics[lost.topic]
        rows = unnamed.segments.get((topic.id, lost.partition), ())
        fitting = _apart([row for row in rows if _fits(topic, lost, row)])
        put_back += [PutBack(lost.topic, lost.partition, row) for row in fitting]
        cut += [replace(lost, gap=gap) for gap in _around(lost.gap, fitting)]
    return Behind(put_back, cut)


def _fits(topic: Topic, lost: CutOut, row: Row) -> bool:
    """Whether all of a row was lost; only where the partition begins it may be cut."""
    part, index = topic.parts[lost.partition], topic.index(lost.partition)
    start = max(lost.gap.start, part.start)
    if not start < row.end_offset <= lost.gap.end:
        return False
    if row.base_offset < start and start > part.start:
        return False
    begin = max(row.base_offset, start)
    is_known = any(True for _ in index.rows(begin, row.end_offset))
    return not (is_known or index.gaps_between(begin, row.end_offset))


def _apart(rows: Sequence[Row]) -> list[Row]:
    """Those that no earlier one overlaps, by their offsets."""
    chosen = list[Row]()
    for row in rows:
        at = bisect_left(chosen, row.end_offset, key=_base)
        if not at or chosen[at - 1].end_offset <= row.base_offset:
            chosen.insert(at, row)
    return chosen


def _base(row: Row) -> int:
    return row.base_offset


def _around(gap: Gap, rows: Sequence[Row]) -> Iterator[Gap]:
    """What is left of a gap beside these rows, which ascend."""
    start = gap.start
    for row in rows:
        if start < row.base_offset:
            yield replace(gap, start=start, end=row.base_offset)
        start = row.end_offset
    if start < gap.end:
        yield replace(gap, start=start)


def lost_ranges(state: StoreState, last: int, unnamed: Unnamed) -> list[CutOut]:
    """What damage took of each partition: offsets between others, and all there may be behind."""
    cut = []
    lost = list(state.damage)
    if state.broken is not None:
        lost.append(replace(state.broken, last_lsn=max(last, state.broken.first_lsn)))
    commits = sum(damage.last_lsn - damage.first_lsn + 1 for damage in lost)
    inline = rows_at_most(commits)
    for topic in state.topics.values():
        for number, part in enumerate(topic.parts):
            index, key = topic.index(number), (topic.id, number)
            gaps = [Gap(hole.start, hole.end, hole.damage.reason) for hole in index.holes]
            doubt = part.doubt or state.broken
            if doubt is not None:
                known = max(part.end, unnamed.ends.get(key, 0))
                end = max(known + inline + unnamed.staged_rows.get(key, 0), _committed(state, key))
                end = max(end, part.start)
                gaps.append(Gap(part.end, end, doubt.reason))
            cut += [CutOut(topic.name, number, gap) for gap in gaps]
    return cut


def rows_at_most(commits: int) -> int:
    """How many records may have stood inside commits that can't be read."""
    return commits * limits.INLINE_COMMIT_BYTES_MAX // _ROW_BYTES_MIN


def _committed(state: StoreState, key: Key) -> int:
    """The highest offset of a partition that a group committed."""
    topic_id, number = key
    return max(
        (group.offsets.get(topic_id, {}).get(number, 0) for group in state.groups.values()),
        default=0,
    )
