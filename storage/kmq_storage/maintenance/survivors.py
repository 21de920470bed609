"""The records of a partition that compaction keeps: the newest of each key.

`newest_offsets` finds them in bounded memory, whatever the partition's size and keys are. The
result has one bit per offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.format.plain_columns import flags_of
from kmq_storage.format.records import keys_of, tombstones_of
from kmq_storage.log.reading.scan import Slice
from kmq_storage.maintenance.newest import keyed, newest_offsets

if TYPE_CHECKING:
    import numpy.typing as npt

#: Offsets that are counted at a time; each takes a byte meanwhile.
_COUNTED_AT_ONCE = 1 << 22


class Survivors:
    """A bit per offset of a span that tells whether the record stays."""

    def __init__(self, start: int, end: int) -> None:
        #: The first offset of the span.
        self.start = start
        self._bits = np.zeros(-(-(end - start) // 8), np.uint8)
        self._buried = np.zeros_like(self._bits)
        #: Whether there were tombstones that are too young to go.
        self.tombstones_wait = False

    def add(self, offsets: Numbers) -> None:
        """Keep the records with these offsets."""
        self._set(self._bits, offsets)

    def bury(self, offsets: Numbers) -> None:
        """Drop the records with these offsets, even if they are the newest of their key."""
        self._set(self._buried, offsets)

    def _set(self, bits: npt.NDArray[np.uint8], offsets: Numbers) -> None:
        at = offsets - self.start
        np.bitwise_or.at(bits, at >> 3, np.left_shift(1, at & 7).astype(np.uint8))

    def count(self, start: int, end: int) -> int:
        """The number of records with offsets in [start, end) that stay."""
        borders = [*range(max(start, self.start), end, _COUNTED_AT_ONCE), end]
        return sum(self._count(*piece) for piece in pairwise(borders))

    def _count(self, start: int, end: int) -> int:
        first, behind = start - self.start, end - self.start
        span = slice(first >> 3, -(-behind // 8))
        bits = np.unpackbits(self._bits[span] & ~self._buried[span], bitorder="little")
        skipped = first & 7
        return int(bits[skipped : skipped + behind - first].sum())

    def of(self, offsets: Numbers) -> Mask:
        """A mask of the records with these offsets that stay."""
        at = offsets - self.start
        bytes_of = self._bits[at >> 3] & ~self._buried[at >> 3]
        found: Mask = (bytes_of >> (at & 7)) & 1 != 0
        return found


def newest_of_each_key(
    slices: Iterable[tuple[Slice, bool]], span: tuple[int, int], *, rows: int
) -> Survivors:
    """The records of a span of offsets to keep: the newest of each key, and those without a key.

    Each slice comes with a flag whether its tombstones are old enough to be dropped. `rows` is a
    rough number of records; a wrong one costs time, not memory.
    """
    survivors = Survivors(*span)
    for offsets in newest_offsets(_keyed_rows(slices, survivors), rows=rows):
        survivors.add(offsets)
    return survivors


def _keyed_rows(
    slices: Iterable[tuple[Slice, bool]], survivors: Survivors
) -> Iterator[pa.RecordBatch]:
    for part, is_old in slices:
        tombstones = tombstones_of(part.batch)
        if is_old:
            survivors.bury(part.offsets()[tombstones])
        elif len(tombstones):
            survivors.tombstones_wait = True
        yield _keyed(part, survivors)


def _keyed(part: Slice, survivors: Survivors) -> pa.RecordBatch:
    """Keys and offsets; records without a key stay, whatever comes."""
    offsets = part.offsets()
    keys = keys_of(part.batch)
    if keys is None:
        survivors.add(offsets)
    elif keys.null_count:
        survivors.add(offsets[flags_of(keys.is_null())])
    return keyed(keys, offsets)
