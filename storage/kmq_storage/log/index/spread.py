"""The spread of partitions' bytes over their offsets, as columns.

There may be ten thousand partitions and a million rows, so no Python object is made per row. Pages
are taken whole, and the rows in memory of all partitions are unpacked together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.format.manifest import Key, Page
from kmq_storage.log.index.offset_index import OffsetIndex, block_of
from kmq_storage.log.index.row_table import ROW_BYTES, Block, block_of_packed

#: How many pages stay mapped while rows are gathered; copying fewer at a time takes longer.
_PAGES_HELD = 16
#: A grain grows to this fraction of the bytes so far, but at most to this multiple of the request.
_SHARE, _GROWTH = 1 << 14, 16
#: This many rows are kept one by one; later rows are joined into grains.
_ROWS_EXACT = 65_536


@dataclass(frozen=True, slots=True)
class Spread:
    """The rows that cover some ranges of offsets, range by range, in order."""

    #: The number of each row's range.
    owners: Numbers
    bases: Numbers
    ends: Numbers
    #: The bytes of each row's records in memory, and the bytes to read for them.
    weights: Numbers
    bytes: Numbers

    def copied(self) -> Spread:
        """A copy, which keeps no page mapped."""
        return Spread(*(getattr(self, name).copy() for name in Spread.__slots__))

    def in_order(self) -> Spread:
        """The rows range by range; those of a range stay in their order."""
        if (self.owners[1:] >= self.owners[:-1]).all():
            return self
        order = np.argsort(self.owners, kind="stable")
        return Spread(*(getattr(self, name)[order] for name in Spread.__slots__))


def spread_of(
    indexes: Sequence[OffsetIndex],
    packed: Sequence[bytes],
    starts: Numbers,
    ends: Numbers,
    *,
    grain: int | None = None,
) -> Spread:
    """The spread of the offsets [start, end) in each of some partitions of a topic.

    `packed` has each partition's rows in memory. If there are very many rows, neighbours that begin
    within the same `grain` bytes to read are joined into one. A grain grows up to sixteen times
    with the number of bytes.
    """
    counts = np.array(list(map(len, packed)), np.int64) // ROW_BYTES
    owners, block = np.repeat(np.arange(len(packed)), counts), block_of_packed(b"".join(packed))
    borders, simple = _borders(owners, block, ends)
    simple &= np.array([not index.gaps for index in indexes], np.bool_)
    older = np.flatnonzero(simple & (starts < borders))
    found = _SpreadBuilder(grain)
    simple[older] &= _pages([indexes[n] for n in older.tolist()], older, starts, borders, found)
    found.add(*_only(simple[owners], owners, block))
    for number in np.flatnonzero(~simple).tolist():
        for each in indexes[number].blocks(int(starts[number]), int(ends[number])):
            found.add(np.full(len(each[0]), number), each)
    return found.spread()


class _SpreadBuilder:
    """Collects rows as columns, and copies them before it keeps many pages mapped."""

    def __init__(self, grain: int | None) -> None:
        self._grain = grain
        #: How many more rows are kept one by one, and the bytes to read for all rows so far.
        self._exact, self._bytes = _ROWS_EXACT, 0
        #: By column. New values may be in pages, which they keep mapped.
        self._new: list[list[Numbers]] = [[] for _ in fields(Spread)]
        self._copied: list[list[Numbers]] = [[] for _ in fields(Spread)]

    def add(self, owners: Numbers, block: Block) -> None:
        """Add rows, in order."""
        self._exact -= len(owners)
        self._bytes += int(block[-1].sum())
        if self._grain is not None and self._exact < 0 < len(owners):
            grain = min(max(self._bytes // _SHARE, self._grain), _GROWTH * self._grain)
            owners, block = _coarser(owners, block, grain)
        for column, values in zip(self._new, (owners, *block), strict=True):
            column.append(values)
        if len(self._new[0]) == _PAGES_HELD:
            self._copy()

    def _copy(self) -> None:
        for copied, new in zip(self._copied, self._new, strict=True):
            copied.append(np.concatenate(new))
            new.clear()

    def spread(self) -> Spread:
        """All added rows, which are then forgotten; rows of a range stay in their order."""
        for copied, new in zip(self._copied, self._new, strict=True):
            copied[:] = [np.concatenate(copied + new)]
        return Spread(*(column.pop() for column in self._copied)).in_order()


def _coarser(owners: Numbers, block: Block, grain: int) -> tuple[Numbers, Block]:
    """The rows, with those joined that are in one range and begin within the same `grain` bytes."""
    bases, ends, weights, read = block
    begins = (np.cumsum(read) - read) // grain
    others = (begins[1:] != begins[:-1]) | (owners[1:] != owners[:-1])
    first = np.append(0, np.flatnonzero(others) + 1)
    behind = np.append(first[1:], len(owners))
    sums = (np.add.reduceat(column, first) for column in (weights, read))
    return owners[first], (bases[first], ends[behind - 1], *sums)


def firsts_and_lasts(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The first and last index of each number among sorted ones.

    `np.unique` would sort them again, and imports much at its first use.
    """
    last = np.flatnonzero(numbers[1:] != numbers[:-1])
    if not len(numbers):
        return last, last
    return np.append(0, last + 1), np.append(last, len(numbers) - 1)


def _borders(owners: Numbers, block: Block, ends: Numbers) -> tuple[Numbers, Mask]:
    """The offset up to which each range is in pages, and whether the rest is all in memory."""
    bases, behind, *_ = block
    first, last = firsts_and_lasts(owners)
    held = owners[first]
    borders, simple = ends.copy(), np.ones(len(ends), np.bool_)
    borders[held] = bases[first]
    simple[held] = behind[last] >= ends[held]
    torn = (bases[1:] != behind[:-1]) & (owners[1:] == owners[:-1])
    simple[owners[1:][torn]] = False
    return borders, simple


def _pages(
    indexes: Sequence[OffsetIndex],
    wanted: Numbers,
    starts: Numbers,
    ends: Numbers,
    found: _SpreadBuilder,
) -> bool:
    """Add the rows of some ranges that are in pages; returns whether it did.

    It does not if a partition comes twice, or if the pages have mostly rows of other partitions.
    """
    if not len(wanted):
        return False
    first, last = indexes[0], indexes[-1]
    numbers = np.array([index.key[1] for index in indexes])
    begin, behind = (first.key, int(starts[wanted[0]])), (last.key, int(ends[wanted[-1]]))
    refs = list(first.manifest.refs_between(begin, behind))
    if len(refs) > len(wanted) or (np.diff(numbers) <= 0).any():
        return False
    owner_of = np.full(numbers[-1] + 1, -1)
    owner_of[numbers] = wanted
    for ref in refs:
        page = first.manifest.page(ref)
        owners = _owners(page, first.key, owner_of)
        mine = (owners >= 0) & (page.ends > starts[owners]) & (page.bases < ends[owners])
        found.add(*_only(mine, owners, block_of((page, 0, len(owners)))))
    return bool(refs)


def _owners(page: Page, key: Key, owner_of: Numbers) -> Numbers:
    """The number of each page row's range; -1 for none."""
    partitions = page.column("partition")
    mine = page.is_of(key) & (partitions < len(owner_of))
    return np.where(mine, owner_of[np.where(mine, partitions, 0)], -1)


def _only(mine: Mask, owners: Numbers, block: Block) -> tuple[Numbers, Block]:
    if mine.all():
        return owners, block
    bases, ends, weights, read = (column[mine] for column in block)
    return owners[mine], (bases, ends, weights, read)
