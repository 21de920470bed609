"""The offsets of each queue's messages in ranges of offsets that are in no run yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.format.queue_table import QueueTable, grouped, merged

#: This many neighbours of about the same size are joined. So each row is moved once per factor of
#: this, and a lookup meets fewer than this many parts of a size.
_FAN = 8
#: The most bytes of names in a joined part, since a column has less than 2 GiB.
_NAMES_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Part:
    """The messages of a range of offsets, sorted by queue and then by offset."""

    table: QueueTable
    #: The offset of each row of the table.
    offsets: Numbers

    @property
    def rows(self) -> int:
        """The number of messages."""
        return len(self.offsets)

    def offsets_of(self, name: bytes) -> Numbers:
        """The offsets of a queue's messages here."""
        first, behind = self.table.rows_of(name)
        return self.offsets[first:behind]

    def since(self, offset: int) -> Part:
        """The part with only the messages at or after an offset."""
        kept = self.offsets >= offset
        return Part(self.table.only(kept), self.offsets[kept])

    def counts(self, names: pa.Array, before: int | Numbers) -> Numbers:
        """The number of each queue's messages here below an offset, which may differ by queue."""
        limit = before
        if not isinstance(before, int):
            places = self.table.places_of(names)
            limits = np.zeros(len(self.table), np.int64)
            limits[places[places >= 0]] = before[places >= 0]
            limit = np.repeat(limits, np.diff(self.table.starts))
        below = np.concatenate([[0], np.cumsum(self.offsets < limit)])
        first, behind = self.table.spans(names)
        counted: Numbers = below[behind] - below[first]
        return counted

    def newest(self, names: pa.Array, before: int) -> Numbers:
        """Each queue's last offset here below `before`; -1 if it has none."""
        first, _ = self.table.spans(names)
        counts = self.counts(names, before)
        return np.where(counts > 0, self.offsets[first + counts - 1], -1)


def part_of(keys: pa.Array, offsets: Numbers) -> Part:
    """The part of messages with these queues and ascending offsets."""
    table, order = grouped(keys)
    return Part(table, offsets[order])


def _with_part(parts: Sequence[Part], newest: Part) -> list[Part]:
    """The parts with one more; neighbours of about the same size are joined."""
    grown = [*parts, newest]
    while len(alike := _newest_alike(grown)) >= _FAN:
        grown[-len(alike) :] = [_joined(alike)]
    return grown


def _newest_alike(parts: Sequence[Part]) -> list[Part]:
    """The newest parts that are not much larger than the last one, and fit into one part."""
    most, left = parts[-1].rows * _FAN, _NAMES_BYTES
    first = len(parts)
    while first > 0 and parts[first - 1].rows < most:
        left -= parts[first - 1].table.names.nbytes
        if left < 0:
            break
        first -= 1
    return list(parts[first:])


def _joined(parts: Sequence[Part]) -> Part:
    table, order = merged([part.table for part in parts])
    return Part(table, np.concatenate([part.offsets for part in parts])[order])


class Parts:
    """Consecutive parts of a topic."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        #: The offset behind the last part.
        self.end = 0

    def add(self, keys: pa.Array, offsets: Numbers, end: int) -> None:
        """Add the messages of offsets from the current end up to a new `end`."""
        if len(keys):
            self._parts = _with_part(self._parts, part_of(keys, offsets))
        self.end = end

    def drop_before(self, offset: int) -> None:
        """Drop the messages below an offset."""
        found = (part.since(offset) for part in self._parts)
        self._parts = [part for part in found if part.rows]
        self.end = max(self.end, offset)

    def offsets(self, name: bytes, first: int, most: int) -> Numbers:
        """The offsets of a queue's messages from its message number `first` on, at most `most`."""
        found = [part.offsets_of(name) for part in self._parts]
        bounds = list(accumulate(map(len, found), initial=0))
        wanted = [
            offsets[max(first - base, 0) : max(first + most - base, 0)]
            for base, offsets in zip(bounds, found, strict=False)
        ]
        return np.concatenate([np.zeros(0, np.int64), *wanted])

    def count(self, name: bytes, before: int) -> int:
        """The number of a queue's messages below an offset."""
        found = (part.offsets_of(name) for part in self._parts)
        return sum(int(offsets.searchsorted(before)) for offsets in found)

    def counts(self, names: pa.Array, before: int | Numbers) -> Numbers:
        """The number of each queue's messages below an offset, which may differ by queue."""
        found = np.zeros(len(names), np.int64)
        for part in self._parts:
            found += part.counts(names, before)
        return found

    def last(self, name: bytes, before: int) -> int:
        """A queue's last offset below `before`; -1 if it has none."""
        for part in reversed(self._parts):
            offsets = part.offsets_of(name)
            count = int(offsets.searchsorted(before))
            if count:
                return int(offsets[count - 1])
        return -1

    def lasts(self, names: pa.Array, before: int) -> Numbers:
        """As `last`, for many queues."""
        found = np.full(len(names), -1)
        for part in self._parts:
            found = np.maximum(found, part.newest(names, before))
        return found

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def names(self) -> list[pa.Array]:
        """The names of all queues, with repetitions."""
        return [part.table.names for part in self._parts]
