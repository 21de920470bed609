"""Paging: the leaf pages of the next checkpoint, most of which are kept from the last one.

Rows since the last checkpoint are put into the pages that their keys belong to. Rows that they
replaced, and rows that were trimmed or deleted, are removed. Only changed pages are written anew.
This only reads pages, and writes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from kmq_storage.format.manifest import Key, PageRef, Row
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.state.store_state import StoreState

#: Rows of a page. A lookup reads one page, and a checkpoint rewrites each changed page.
PAGE_ROWS = 4096

#: A changed page with fewer rows is joined with its neighbour.
_PAGE_ROWS_MIN = PAGE_ROWS // 4

KeyedRow: TypeAlias = tuple[Key, Row]
FirstOffset: TypeAlias = tuple[Key, int]


def repaged(manifest: Manifest, state: StoreState) -> Iterator[PageRef | list[KeyedRow]]:
    """The pages of the next checkpoint, in order: references to kept ones, and rows of new ones."""
    fresh = _Fresh(state)
    rows: list[KeyedRow] = []
    for number, ref in enumerate(manifest.refs):
        following = manifest.refs[number + 1].first if number + 1 < len(manifest.refs) else None
        rows += fresh.before(ref.first)
        if not fresh.touches(ref, following) and (len(rows) >= _PAGE_ROWS_MIN or not rows):
            yield from _cut(rows)
            rows = []
            yield ref
            continue
        old = [(key, row) for key, row in rows_of(manifest, ref) if fresh.keeps(key, row)]
        rows = _merged(rows, old + fresh.before(following))
        while len(rows) >= 2 * PAGE_ROWS:
            yield rows[:PAGE_ROWS]
            rows = rows[PAGE_ROWS:]
    yield from _cut(rows + fresh.before(None))


def rows_of(manifest: Manifest, ref: PageRef) -> Iterator[KeyedRow]:
    """The rows of a page, in order, each with its partition."""
    page = manifest.page(ref)
    for key, (low, high) in page.spans.items():
        for row in page.rows(low, high):
            yield key, row


def _merged(first: list[KeyedRow], second: list[KeyedRow]) -> list[KeyedRow]:
    return first + sorted(second, key=_first_offset)


def _first_offset(keyed: KeyedRow) -> FirstOffset:
    return keyed[0], keyed[1].base_offset


def _cut(rows: Sequence[KeyedRow]) -> Iterator[list[KeyedRow]]:
    for start in range(0, len(rows), PAGE_ROWS):
        yield list(rows[start : start + PAGE_ROWS])


class _Fresh:
    """The rows since the last checkpoint, in order, and how they affect older ones."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._rows: list[KeyedRow] = sorted(
            (
                ((topic.id, number), row)
                for topic in state.topics.values()
                for number, part in enumerate(topic.parts)
                if part.index is not None
                for row in part.index.recent_rows()
                if row.end_offset > part.start
            ),
            key=_first_offset,
        )
        self._places = [_first_offset(keyed) for keyed in self._rows]
        self._taken = 0

    def before(self, place: FirstOffset | None) -> list[KeyedRow]:
        """The rows before a place that were not returned yet."""
        end = len(self._rows) if place is None else bisect_left(self._places, place)
        taken = self._rows[self._taken : end]
        self._taken = max(self._taken, end)
        return taken

    def touches(self, ref: PageRef, following: FirstOffset | None) -> bool:
        """Whether a page may change: rows are added, or may be removed."""
        low, high = ref.first[0], ref.last[0]
        if any(low[0] <= topic_id <= high[0] for topic_id in self._state.deleted):
            return True
        if any(low <= key <= high for key in self._state.cut):
            return True
        first = max(bisect_right(self._places, ref.first) - 1, 0)
        end = len(self._rows) if following is None else bisect_left(self._places, following)
        return any(
            key > low or row.end_offset > ref.first[1]
            for key, row in self._rows[first:end]
            if key >= low
        )

    def keeps(self, key: Key, row: Row) -> bool:
        """Whether an older row stays in the manifest."""
        topic = self._state.topic_by_id(key[0])
        if topic is None or row.end_offset <= topic.parts[key[1]].start:
            return False
        base = max(row.base_offset, topic.parts[key[1]].start)
        gaps = topic.index(key[1]).gaps
        if any(gap.start <= base and row.end_offset <= gap.end for gap in gaps):
            return False
        at = max(bisect_right(self._places, (key, row.base_offset)) - 1, 0)
        return not any(
            fresh_key == key
            and fresh.base_offset < row.end_offset
            and row.base_offset < fresh.end_offset
            for fresh_key, fresh in self._rows[at : at + 2]
        )
