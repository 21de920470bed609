"""Where records stand, against a list of rows: appended, replaced, trimmed, cut, in pages or not.

Finds a row that is lost, doubled or shadowed wrongly where memory and pages meet, pages that grow
or shrink without bounds, and a checkpoint that writes pages nothing changed in.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kmq_spark.datasource.streams.weighing import Weighed
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import DataLossError
from kmq_storage.format.entries import RecordsEntry, TopicEntry
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.manifest import SEGMENT, Page, Row
from kmq_storage.log.checkpoints import paging
from kmq_storage.log.checkpoints.checkpoint import newest_checkpoint, write_checkpoint
from kmq_storage.log.checkpoints.snapshot import snapshot
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.index import spread
from kmq_storage.log.index.excerpt import excerpt_of
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.index.offset_index import OffsetIndex
from kmq_storage.log.index.row_table import packed_between
from kmq_storage.log.index.spread import spread_of
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.memory import MemoryDisk
from tests.unit.storage.test_state_and_chunks import _no_pages

TOPICS = [bytes([n]) * 16 for n in (1, 2)]
PARTITIONS = 3
PAGE_ROWS = 6
places = st.tuples(st.sampled_from(TOPICS), st.integers(0, PARTITIONS - 1))


@dataclass(frozen=True)
class Stored:
    """A row of the model."""

    base: int
    end: int
    time: int
    file: bytes


class IndexModel(RuleBasedStateMachine):
    """The model: the rows, the start, the end and the gaps of each partition."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(paging, "PAGE_ROWS", PAGE_ROWS)
        self.patch.setattr(paging, "_PAGE_ROWS_MIN", 2)
        self.patch.setattr(spread, "_PAGES_HELD", 2)
        keys = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
        self.rows: dict[tuple[bytes, int], list[Stored]] = {key: [] for key in keys}
        self.starts = dict.fromkeys(keys, 0)
        self.ends = dict.fromkeys(keys, 0)
        self.gaps: dict[tuple[bytes, int], list[tuple[int, int]]] = {key: [] for key in keys}
        self.changed: set[tuple[bytes, int]] = set()

    def teardown(self) -> None:
        """Give back the limits."""
        self.patch.undo()

    @initialize()
    def open(self) -> None:
        """Two topics without a record."""
        self.files = MemoryDisk(f"memory://{uuid.uuid4().hex}")
        self.state = StoreState(_no_pages())
        for topic in TOPICS:
            name = f"t{topic[0]}"
            self._apply(TopicEntry(topic, name, PARTITIONS, {}))

    def _apply(self, entry: object) -> None:
        lsn = self.state.lsn + 1
        self.state.apply(lsn, lsn, [entry], file=lsn, position=0)  # type: ignore[list-item]

    def _live(self, key: tuple[bytes, int]) -> list[Stored]:
        return [row for row in self.rows[key] if row.end > self.starts[key]]

    @rule(
        key=places, widths=st.lists(st.integers(1, 9), min_size=1, max_size=6), rising=st.booleans()
    )
    def append(self, key: tuple[bytes, int], widths: list[int], rising: bool) -> None:
        """Rows of newer records."""
        for width in widths:
            base = self.ends[key]
            at = base if rising else 1_000 - base
            entry = RecordsEntry(key[0], key[1], width, base, 0, 5, 0, 0, at, at, width)
            self._apply(entry)
            file = self.state.lsn.to_bytes(16, "little")
            self.rows[key].append(Stored(base, base + width, at, file))
            self.ends[key] += width
        self.changed.add(key)

    @rule(key=places, share=st.tuples(st.floats(0, 1), st.floats(0, 1)))
    def replace(self, key: tuple[bytes, int], share: tuple[float, float]) -> None:
        """A segment in place of some consecutive rows."""
        live = self._live(key)
        low, high = sorted(round(each * len(live)) for each in share)
        run = live[low:high]
        if not run:
            return
        base, file_id = max(run[0].base, self.starts[key]), uuid.uuid4().bytes
        time, rows = max(row.time for row in run), sum(row.end - row.base for row in run)
        facts = (rows, file_id, 99, 90, 0, 15, time, time, 1, rows, rows, rows, 0)
        self._apply(SegmentEntry(*key, base, run[-1].end, *facts))
        kept = [row for row in self.rows[key] if row.end <= base or row.base >= run[-1].end]
        kept.append(Stored(base, run[-1].end, time, file_id))
        self.rows[key] = sorted(kept, key=lambda row: row.base)
        self.changed.add(key)

    @rule(key=places, share=st.floats(0, 1))
    def trim(self, key: tuple[bytes, int], share: float) -> None:
        """The start is raised."""
        self.starts[key] += round(share * (self.ends[key] - self.starts[key]))
        self._apply(TrimEntry(*key, self.starts[key], 0, 0, 0))
        self.rows[key] = self._live(key)
        self.changed.add(key)

    @rule(key=places, share=st.tuples(st.floats(0, 1), st.floats(0, 1)))
    def cut(self, key: tuple[bytes, int], share: tuple[float, float]) -> None:
        """Some whole rows are lost."""
        live = self._live(key)
        low, high = sorted(round(each * len(live)) for each in share)
        run = live[low:high]
        if not run or run[0].base < self.starts[key]:
            return
        gap = run[0].base, run[-1].end
        self._apply(GapEntry(*key, *gap, 0, 0, 0, "lost"))
        self.rows[key] = [row for row in self.rows[key] if row not in run]
        self.gaps[key].append(gap)
        self.changed.add(key)

    @rule()
    def checkpoint(self) -> None:
        """The rows go into pages, and the state begins anew on them."""
        before = {ref.page_id: ref for ref in self._refs()}
        cursor = Cursor(self.state.lsn, 7, self.state.lsn, 1, 64)
        written = write_checkpoint(
            self.files, self.state, cursor, SYSTEM.new_uuid, began=self.files.now()
        )
        found = newest_checkpoint(self.files)
        assert found is not None
        assert found.cursor == cursor
        restored = found.state(self.files, indexed=True)
        assert json.dumps(snapshot(restored)) == json.dumps(snapshot(self.state))
        self.state = restored
        after = {ref.page_id: ref for ref in self._refs()}
        assert len(after.keys() - before.keys()) == written
        for page_id in after.keys() & before.keys():
            assert after[page_id] == before[page_id]
        if not self.changed:
            assert written <= sum(ref.rows < 2 for ref in before.values())
        self.changed.clear()
        self._check_bounds()

    def _refs(self) -> list:
        assert self.state.manifest is not None
        return self.state.manifest.refs

    def _check_bounds(self) -> None:
        refs = self._refs()
        assert all(1 <= ref.rows <= PAGE_ROWS for ref in refs)
        total = sum(len(rows) for rows in self.rows.values())
        assert sum(ref.rows for ref in refs) == total
        assert [ref.first for ref in refs] == sorted(ref.first for ref in refs)
        assert all(ref.first <= ref.last for ref in refs)

    @precondition(lambda self: hasattr(self, "state"))
    @rule(key=places, share=st.tuples(st.floats(0, 1), st.floats(0, 1)), limit=st.integers(1, 5))
    def look(self, key: tuple[bytes, int], share: tuple[float, float], limit: int) -> None:
        """Any range: the rows that overlap it, in order."""
        start, end = self._range(key, share)
        expected = [row for row in self._live(key) if row.base < end and start < row.end]
        index = self.state.topic(f"t{key[0][0]}").index(key[1])
        found = list(index.rows(start, end)) if start < end else []
        assert [_stored(row) for row in found] == (expected if start < end else [])
        assert len(index.between(start, end, limit)) == min(limit, len(found))
        packed = packed_between([index.recent], np.array([start]), np.array([end]))
        excerpt = excerpt_of([index], packed, start, end)
        found_there = excerpt.places(excerpt.pages(Manifest(self.files, ())), key[1], start, end)
        assert found_there == index.between(start, end)
        if start == end:
            return
        self._look_at_runs(index, start, end, found)
        self._look_at_spread(key, start, end, found)

    def _look_at_spread(
        self, key: tuple[bytes, int], start: int, end: int, found: list[Row]
    ) -> None:
        """One range alone, as seldom as none of it is seen page by page, and beside all others."""
        topic = self.state.topic(f"t{key[0][0]}")
        spans = [(0, part.end) for part in topic.parts]
        spans[key[1]] = (start, end)
        every = [topic.index(number) for number in range(PARTITIONS)]
        for indexes, (starts, ends) in (
            ([topic.index(key[1])], np.array([[start], [end]])),
            (every, np.array(spans).T),
        ):
            packed = packed_between((i.recent for i in indexes), starts, ends)
            seen = spread_of(indexes, packed, starts, ends)
            mine = seen.owners == (0 if len(indexes) == 1 else key[1])
            assert seen.bases[mine].tolist() == [row.base_offset for row in found]
            assert seen.ends[mine].tolist() == [row.end_offset for row in found]
            assert seen.weights[mine].tolist() == [row.weight for row in found]
            assert seen.bytes[mine].tolist() == [row.bytes for row in found]
        place = np.array([key[1]])
        self._look_at_bytes(Weighed.of(seen, starts, ends), place, found, (start, end))

    def _look_at_bytes(
        self, weighed: Weighed, place: Any, found: list[Row], bounds: tuple[int, int]
    ) -> None:
        """How far bytes reach, in a range that is not the only one."""
        start, end = bounds
        total = sum(_weight_in(row, start, end) for row in found)
        for budget in range(0, total + 1, total // 7 + 1):
            reached, weight, whole = weighed.within(place, np.array([budget]))
            assert int(weight[0]) <= budget
            assert bool(whole[0]) == (budget == total)
            # Whoever cuts a row in proportion is off by less than two records of it.
            behind = min(int(reached[0]) + 2, end)
            more = sum(_weight_in(row, start, behind) for row in found)
            assert more > budget or behind == end or bool(whole[0])

    def _look_at_runs(self, index: OffsetIndex, start: int, end: int, found: list[Row]) -> None:
        expected = [list(run) for wanted, run in groupby(found, key=_is_sealed) if wanted]
        assert list(index.runs(start, end, _is_sealed)) == expected
        assert index.weight(start, end, _is_sealed) == sum(
            row.weight for row in found if _is_sealed(row)
        )
        assert index.size_from(start, end) == sum(row.held_from(start)[1] for row in found)

    @precondition(lambda self: hasattr(self, "state"))
    @rule(key=places, share=st.tuples(st.floats(0, 1), st.floats(0, 1)), time=st.integers(0, 1_000))
    def find(self, key: tuple[bytes, int], share: tuple[float, float], time: int) -> None:
        """The first row that is new enough."""
        start, _ = self._range(key, share)
        index = self.state.topic(f"t{key[0][0]}").index(key[1])
        row = index.first_since(time, start, self.ends[key])
        expected = [each for each in self._live(key) if each.end > start and each.time >= time]
        assert (row and _stored(row)) == (expected[0] if expected else None)

    def _range(self, key: tuple[bytes, int], share: tuple[float, float]) -> tuple[int, int]:
        width = self.ends[key] - self.starts[key]
        low, high = sorted(self.starts[key] + round(each * width) for each in share)
        return low, high

    @invariant()
    def gaps_are_told(self) -> None:
        """Who reads in a gap gets DataLossError."""
        for key, gaps in self.gaps.items() if hasattr(self, "state") else ():
            index = self.state.topic(f"t{key[0][0]}").index(key[1])
            for start, end in gaps:
                if start >= self.starts[key]:
                    with pytest.raises(DataLossError):
                        index.check("t", start, end)


def _weight_in(row: Row, start: int, end: int) -> int:
    width = min(row.end_offset, end) - max(row.base_offset, start)
    return max(row.weight * width // (row.end_offset - row.base_offset), 0)


def _is_sealed(rows: Row | Page) -> Any:
    return rows.kind == SEGMENT


def _stored(row: Row) -> Stored:
    return Stored(row.base_offset, row.end_offset, row.max_timestamp, row.file)


TestIndexModel = IndexModel.TestCase
TestIndexModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
