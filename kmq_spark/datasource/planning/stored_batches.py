"""The record batches of the index rows that tasks would divide.

A segment is one row, whatever its batches are: only its footer tells how its bytes are spread. So
the footers of those segments are opened that a bound or a border between tasks falls into.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from kmq_spark.datasource.planning.pieces import Pieces
from kmq_spark.datasource.planning.topic_ranges import TopicRanges
from kmq_storage.arrays import Mask, Numbers
from kmq_storage.errors import CorruptionError
from kmq_storage.format.records import is_run
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.model import Chunk, Place, Segment
from kmq_storage.objects.files import Files

#: A plan looks into this many rows, the largest first: in a bucket each footer costs a request. The
#: others are divided in proportion to their offsets.
_FOOTERS_MAX = 256
#: Rows that were joined for planning are looked up if they are no more than this.
_PLACES_MAX = 1_024
#: How many footers are announced ahead of their use.
_AHEAD = 16


class StoredBatches:
    """Finds the batches for the pieces of some ranges."""

    def __init__(self, ranges: Sequence[TopicRanges], files: Files) -> None:
        self._ranges = ranges
        self._firsts = np.cumsum([0, *map(len, ranges)])
        self._files = files
        self._reader = ChunkReader(files)
        self._left = _FOOTERS_MAX

    def instead_of(self, wanted: Numbers, pieces: Pieces, larger: int) -> Pieces:
        """Put batches in the place of wanted pieces; segments up to `larger` bytes stay closed."""
        found = {n: self._places(pieces, n) for n in wanted[:_FOOTERS_MAX].tolist()}
        segments = {
            place.location.file: place
            for places in found.values()
            for place in places
            if isinstance(place, Segment) and place.length > larger and not is_run(place.columns)
        }
        opened = [*segments.values()][: self._left]
        self._left -= len(opened)
        footers = dict(self._opened(opened))
        batches = {
            n: _Rows.of(places, footers, larger).between(*pieces.span(n))
            for n, places in found.items()
            if places
        }
        return pieces.with_batches(batches)

    def _places(self, pieces: Pieces, number: int) -> list[Place]:
        """Where a piece's records are; nothing if that are too many places."""
        owner, start, end = pieces.span(number)
        of = int(self._firsts.searchsorted(owner, "right")) - 1
        index = self._ranges[of].indexes[owner - int(self._firsts[of])]
        places = index.between(start, end, _PLACES_MAX)
        return places if places and places[-1].end_offset >= end else []

    def _opened(self, segments: Sequence[Segment]) -> Iterator[tuple[str, tuple[Chunk, ...]]]:
        """The batches of segments by file; a damaged or missing one is left to its task."""
        for at, segment in enumerate(segments):
            if at % _AHEAD == 0:
                soon = (each.location for each in segments[at : at + 2 * _AHEAD])
                self._files.prefetch((each.file, each.position, each.length) for each in soon)
            with suppress(CorruptionError):
                yield segment.location.file, self._reader.footer(segment).chunks


@dataclass(frozen=True)
class _Rows:
    """Consecutive batches, and segments that were not opened."""

    bases: Numbers
    ends: Numbers
    bytes: Numbers
    #: Whether each stays in one piece: it is a batch, or small.
    whole: Mask

    @classmethod
    def of(
        cls, places: Sequence[Place], footers: Mapping[str, tuple[Chunk, ...]], larger: int
    ) -> _Rows:
        """The batches at these places, as far as footers are known."""
        rows: list[tuple[int, int, bool]] = []
        for place in places:
            size = place.length if isinstance(place, Segment) else place.location.length
            if chunks := footers.get(place.location.file, ()):
                rows += _batches(place, chunks, size)
            else:
                rows.append((place.base_offset, size, isinstance(place, Chunk) or size <= larger))
        bases, sizes, whole = zip(*rows, strict=True)
        ends = [*bases[1:], places[-1].end_offset]
        return cls(np.array(bases), np.array(ends), np.array(sizes), np.array(whole, np.bool_))

    def between(self, owner: int, start: int, end: int) -> Pieces:
        """The pieces of a range's offsets from start up to end, all of which they have."""
        starts, ends = np.maximum(self.bases, start), np.minimum(self.ends, end)
        read = (self.bytes * ((ends - starts) / (self.ends - self.bases))).astype(np.int64)
        rows = np.where(self.whole, 0, self.bytes)
        owners = np.full(len(starts), owner)
        return Pieces(owners, starts, ends, read, rows).only(ends > starts)


def _batches(place: Place, chunks: Sequence[Chunk], size: int) -> Iterator[tuple[int, int, bool]]:
    """The base offset and bytes of each batch of a segment; together it has all of its bytes."""
    lengths = np.cumsum([0, *(each.location.length for each in chunks)])
    sizes = np.diff(size * lengths // lengths[-1])
    # Compaction may have dropped its first records.
    bases = [place.base_offset, *(each.base_offset for each in chunks[1:])]
    return zip(bases, sizes.tolist(), repeat(True), strict=False)
