"""The record batches of the index rows that tasks would divide.

A segment is one row, whatever its batches are: only its footer tells how its bytes are spread. So
the footers of those segments are opened that a bound or a border between tasks falls into. Runs,
which are sorted by queue, are sampled in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kmq_spark.datasource.planning.pieces import Pieces
from kmq_spark.datasource.planning.sampled_runs import sampled
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
#: Of the runs among them, so many batches of up to 512 KiB are read, of each equally many.
_SAMPLED_MAX = 128
#: How many footers are announced ahead of their use.
_AHEAD = 16

#: The base offset and bytes of consecutive batches.
_Batches: TypeAlias = list[tuple[int, int]]


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
            if isinstance(place, Segment) and place.length > larger
        }
        opened = [*segments.values()][: self._left]
        self._left -= len(opened)
        known = dict(self._opened(opened))
        batches = {
            n: _Rows.of(places, known, larger).between(*pieces.span(n))
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

    def _opened(self, segments: Sequence[Segment]) -> Iterator[tuple[str, _Batches]]:
        """The batches of segments by file; a damaged or missing one is left to its task."""
        runs = sum(is_run(segment.columns) for segment in segments)
        for at, segment in enumerate(segments):
            if at % _AHEAD == 0:
                soon = (each.location for each in segments[at : at + 2 * _AHEAD])
                self._files.prefetch((each.file, each.position, each.length) for each in soon)
            with suppress(CorruptionError):
                if is_run(segment.columns):
                    found = sampled(self._reader, segment, _SAMPLED_MAX // runs)
                else:
                    found = _batches(segment, self._reader.footer(segment).chunks)
                yield segment.location.file, found


@dataclass(frozen=True)
class _Rows:
    """Consecutive batches, and segments that were not opened."""

    bases: Numbers
    ends: Numbers
    bytes: Numbers
    #: Whether each stays in one piece: it is a batch, or small.
    whole: Mask

    @classmethod
    def of(cls, places: Sequence[Place], known: Mapping[str, _Batches], larger: int) -> _Rows:
        """The batches at these places, as far as those of segments are known."""
        rows: list[tuple[int, int, bool]] = []
        for place in places:
            size = place.length if isinstance(place, Segment) else place.location.length
            if found := known.get(place.location.file):
                rows += [(base, length, True) for base, length in found]
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


def _batches(segment: Segment, chunks: Sequence[Chunk]) -> _Batches:
    """The base offset and bytes of each batch of a segment; together it has all of its bytes."""
    if not chunks:
        return []
    lengths = np.cumsum([0, *(each.location.length for each in chunks)])
    sizes = np.diff(segment.length * lengths // lengths[-1])
    # Compaction may have dropped its first records.
    bases = [segment.base_offset, *(each.base_offset for each in chunks[1:])]
    return list(zip(bases, sizes.tolist(), strict=True))
