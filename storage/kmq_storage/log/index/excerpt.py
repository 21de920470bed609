"""Excerpts of a state, with which another process finds records without replaying the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kmq_storage.format.manifest import PageRef
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.index.offset_index import Gap, OffsetIndex
from kmq_storage.log.index.row_table import rows_of_packed
from kmq_storage.model import Place


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Finds records of some partitions of a topic, which may share pages."""

    topic_id: bytes
    refs: tuple[PageRef, ...]
    #: By partition, the rows that are in no page. They are packed, as there may be very many.
    recent: Mapping[int, bytes]
    gaps: Mapping[int, tuple[Gap, ...]]

    def pages(self, known: Manifest) -> Manifest:
        """The manifest of the pages that it refers to; excerpts of many topics share pages."""
        return known.sharing(self.refs)

    def places(self, pages: Manifest, partition: int, start: int, end: int) -> list[Place]:
        """The places of the records of a partition with offsets in [start, end)."""
        index = OffsetIndex((self.topic_id, partition), pages)
        index.gaps = list(self.gaps.get(partition, ()))
        for row in rows_of_packed(self.recent.get(partition, b"")):
            if row.base_offset >= index.recent.end:
                index.append(row)
        return index.between(start, end)


def excerpt_of(
    indexes: Sequence[OffsetIndex], packed: Sequence[bytes], first: int, last: int
) -> Excerpt:
    """The excerpt for ranges of a topic, with partitions ascending, and their packed rows.

    The first range begins at offset `first`, and the last one ends at `last`.
    """
    begin, behind = (indexes[0].key, first), (indexes[-1].key, last)
    numbers = [index.key[1] for index in indexes]
    recent = dict(zip(numbers, packed, strict=True))
    if len(recent) < len(numbers):  # several ranges of one partition
        recent = _joined(zip(numbers, packed, strict=True))
    if not all(packed):
        recent = {number: rows for number, rows in recent.items() if rows}
    gaps = {index.key[1]: tuple(index.gaps) for index in indexes if index.gaps}
    refs = tuple(indexes[0].manifest.refs_between(begin, behind))
    return Excerpt(indexes[0].key[0], refs, recent, gaps)


def _joined(ranges: Iterable[tuple[int, bytes]]) -> dict[int, bytes]:
    """The rows of each partition; a row that two ranges share comes twice."""
    recent: dict[int, bytes] = {}
    for number, rows in ranges:
        recent[number] = recent.get(number, b"") + rows
    return recent
