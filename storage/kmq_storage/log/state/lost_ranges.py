"""What damaged commits held of each partition: what is still in segments, and what is lost.

Offsets that a lost commit may have given out are never given out again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeAlias

from kmq_storage import limits
from kmq_storage.cutting import outside
from kmq_storage.format.manifest import SEGMENT, Key, Row
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic

#: A range of offsets [start, end).
Span: TypeAlias = tuple[int, int]
#: The name of a topic, and the number of a partition.
_Place: TypeAlias = tuple[str, int]

#: The least bytes of a stored record: its timestamp.
_ROW_BYTES_MIN = 8


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Records in files that no readable commit names; lost commits may have named them."""

    #: The number of records in staged files.
    staged_rows: Mapping[Key, int] = field(default_factory=dict)
    #: Segments, the best first: of overlapping ones, the first that fits counts.
    segments: Mapping[Key, Sequence[Row]] = field(default_factory=dict)
    #: The files of segments that prove to have every record of their offsets.
    complete: Collection[bytes] = frozenset()
    #: Offsets of known rows whose records can't be read.
    unreadable: Mapping[Key, Sequence[Span]] = field(default_factory=dict)
    #: The highest end of any segment, also of one that can't be put back.
    ends: Mapping[Key, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CutOut:
    """A gap of a partition: offsets that a repair gives up."""

    topic: str
    partition: int
    gap: Gap


@dataclass(frozen=True, slots=True)
class PutBack:
    """A segment that is put back, because the commits that named it are lost."""

    topic: str
    partition: int
    row: Row


@dataclass(frozen=True, slots=True)
class Behind:
    """What a repair does about damaged commits: segments to put back, and gaps to cut out."""

    put_back: Sequence[PutBack]
    cut: Sequence[CutOut]


def plan_behind(state: StoreState, last: int, unnamed: Unnamed) -> Behind:
    """Plan which segments to put back into lost ranges, and the gaps that remain.

    `last` is the LSN of the last commit that existed.
    """
    lost: dict[_Place, list[Gap]] = {}
    for each in lost_ranges(state, last, unnamed):
        lost.setdefault((each.topic, each.partition), []).append(each.gap)
    found: dict[_Place, list[Row]] = {}
    for (topic_id, number), rows in unnamed.segments.items():
        topic = state.topic_by_id(topic_id)
        if topic is not None and number < topic.partitions:
            known = _Known(topic, number, lost.get((topic.name, number), ()), unnamed)
            fitting = _apart([row for row in rows if known.has_place_for(row)])
            found[topic.name, number] = known.countable(fitting)
    put_back = [PutBack(*place, row) for place, rows in found.items() for row in rows]
    left = ((place, _around(gap, found.get(place, ()))) for place in lost for gap in lost[place])
    return Behind(put_back, [CutOut(*place, gap) for place, gaps in left for gap in gaps])


class _Known:
    """The known rows and the lost offsets of one partition."""

    def __init__(self, topic: Topic, number: int, lost: Sequence[Gap], unnamed: Unnamed) -> None:
        self._part, self._index = topic.parts[number], topic.index(number)
        self._complete = unnamed.complete
        self._lost = [(gap.start, gap.end) for gap in lost]
        self._wanted = [*self._lost, *unnamed.unreadable.get((topic.id, number), ())]

    def has_place_for(self, row: Row) -> bool:
        """Whether a segment has lost records, and can be put back without harm to known ones."""
        begin, end = max(row.base_offset, self._part.start), row.end_offset
        is_wanted = any(low < end and begin < high for low, high in self._wanted)
        if not is_wanted or begin >= end or self._index.gaps_between(begin, end):
            return False
        if row.in_run and row.base_offset < begin:
            return False  # a cut run does not tell at which indexes the queues go on
        known = list(self._index.rows(begin, end))
        if known and not (row.file in self._complete and self._gives_way(known, begin, end)):
            return False
        spans = [(each.base_offset, each.end_offset) for each in known]
        return not any(True for _ in outside([*spans, *self._lost], begin, end))

    def countable(self, rows: Sequence[Row]) -> list[Row]:
        """The segments (ascending), without runs behind offsets that stay lost.

        The index of a queue's message is the number of messages before it, so it would be wrong in
        such a run.
        """
        kept = list[Row]()
        for row in rows:
            is_lost = row.in_run and any(
                left.start < row.base_offset
                for low, high in self._wanted
                for left in _around(Gap(low, high, ""), kept)
            )
            if not is_lost:
                kept.append(row)
        return kept

    def _gives_way(self, known: Sequence[Row], begin: int, end: int) -> bool:
        """Whether known rows are unsealed, and begin and end within the segment."""
        is_cut = known[0].base_offset < begin and begin > self._part.start
        is_sealed = any(row.kind == SEGMENT for row in known)
        return not (is_cut or is_sealed or known[-1].end_offset > end)


def _apart(rows: Sequence[Row]) -> list[Row]:
    """The rows that overlap no earlier one, sorted by offset."""
    chosen = list[Row]()
    for row in rows:
        at = bisect_left(chosen, row.end_offset, key=attrgetter("base_offset"))
        if not at or chosen[at - 1].end_offset <= row.base_offset:
            chosen.insert(at, row)
    return chosen


def _around(gap: Gap, rows: Sequence[Row]) -> list[Gap]:
    """The parts of a gap that these rows don't cover."""
    spans = ((row.base_offset, row.end_offset) for row in rows)
    left = outside(spans, gap.start, gap.end)
    return [replace(gap, start=start, end=end) for start, end in left]


def lost_ranges(state: StoreState, last: int, unnamed: Unnamed) -> list[CutOut]:
    """The offsets that damage took of each partition, as gaps.

    They are the holes between known offsets, and as many offsets behind the end as the lost commits
    may have given out.
    """
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
    """The most records that this many unreadable commits may have had inline."""
    return commits * limits.SMALL_COMMIT_BYTES_MAX // _ROW_BYTES_MIN


def _committed(state: StoreState, key: Key) -> int:
    """The highest offset of a partition that a group committed."""
    topic_id, number = key
    return max(
        (group.offsets.get(topic_id, {}).get(number, 0) for group in state.groups.values()),
        default=0,
    )


def recount(state: StoreState) -> None:
    """Count the records and bytes of each partition anew.

    Commits only tell differences to earlier ones, some of which are lost.
    """
    for topic in state.topics.values():
        for number, part in enumerate(topic.parts):
            rows = topic.index(number).rows(part.start, part.end)
            held = [row.held_from(part.start) for row in rows]
            part.rows, part.size = sum(each[0] for each in held), sum(each[1] for each in held)
