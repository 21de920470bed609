"""Reading runs in the order of offsets, for all readers of topics: consumers, Spark, copies.

The records of a run are sorted by queue, so a few consecutive offsets may be anywhere in it. A
reader therefore takes pieces of many offsets at once, from batches that stay verified meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format.plain_columns import no_rows, number_column, numbers_of
from kmq_storage.format.records import offsets_of, without_offsets
from kmq_storage.format.segment import SegmentFooter
from kmq_storage.model import Chunk, Location, Place, RunPiece

#: Offsets and bytes of a piece; larger pieces go through the batches less often.
_PIECE_ROWS = 1 << 18
_PIECE_BYTES = 64 * 1024 * 1024


def pieces_of(place: Place, footer: SegmentFooter) -> tuple[RunPiece, ...]:
    """The pieces of a run, in the order of offsets; none for a run without records."""
    if not footer.chunks:
        return ()
    base, end = place.base_offset, place.end_offset
    count = end - base
    step = max(1, min(_PIECE_ROWS, _PIECE_BYTES * count // max(place.size, 1)))
    first, last = footer.chunks[0].location.position, footer.chunks[-1].location
    location = Location(place.location.file, first, last.position + last.length - first)
    return tuple(
        RunPiece(
            at,
            min(at + step, end),
            _rows(place, min(at + step, end) - at),
            location,
            0,
            place.columns,
            place.min_timestamp,
            place.max_timestamp,
            place.size * min(step, end - at) // count,
            batches=footer.chunks,
        )
        for at in range(base, end, step)
    )


def _rows(place: Place, offsets: int) -> int:
    """The number of records in a piece; if offsets have gaps, an estimate below their number."""
    count = place.end_offset - place.base_offset
    return offsets if place.rows == count else min(place.rows, offsets - 1)


class RunByOffset:
    """The batches of one run, with access by offset."""

    def __init__(
        self,
        batches: Sequence[pa.RecordBatch],
        damaged: Chunk | None = None,
        damage: CorruptionError | None = None,
        lost: Numbers | None = None,
    ) -> None:
        """Take the whole batches; of damaged ones the first, its error, and all known offsets."""
        self.damaged = damaged
        self.damage = damage
        self._lost = None if lost is None else np.sort(lost)
        self._table = pa.Table.from_batches(batches)
        #: The offsets of a piece with errors, and its records.
        self._held: tuple[tuple[int, int], pa.RecordBatch] | None = None
        offsets = run_offsets(batches)
        #: The rows in the order of offsets, and these offsets.
        self._rows = np.argsort(offsets)
        self._offsets = offsets[self._rows]

    def lost_between(self, start: int, end: int) -> tuple[int, int] | None:
        """The first offsets in [start, end) that damaged batches may have, up to a whole record."""
        at = end if self.damage is None else self._first_lost(start, end)
        if at == end:
            return None
        later = self._offsets[self._offsets.searchsorted(at) :][:1].tolist()
        return at, later[0] if later else end

    def _first_lost(self, start: int, end: int) -> int:
        if self._lost is not None:
            later: list[int] = self._lost[self._lost.searchsorted(start) :][:1].tolist()
            return min([*later, end])
        first, behind = self._offsets.searchsorted((start, end)).tolist()
        found = self._offsets[first:behind]
        return start + int((found == np.arange(start, start + len(found))).sum())

    def is_read(self, end: int) -> bool:
        """Whether no whole record is at or behind an offset."""
        return not len(self._offsets) or bool(self._offsets[-1] < end)

    def between(self, start: int, end: int) -> pa.RecordBatch:
        """The records with offsets in [start, end), with an `offset` column."""
        first, behind = self._offsets.searchsorted((start, end)).tolist()
        table = self._table.take(number_column(self._rows[first:behind])).combine_chunks()
        batches = table.to_batches() or self._table.slice(0, 0).to_batches()
        return batches[0] if batches else no_rows(table.schema)

    def inside(self, piece: RunPiece, start: int, end: int, *, goes_on: bool) -> pa.RecordBatch:
        """As `between`, with an `offset` column unless the piece has all offsets.

        With damage or `goes_on`, the piece stays in memory: there may be many errors in it.
        """
        if goes_on or self.damage is not None:
            batch = self._held_of((piece.base_offset, piece.end_offset), start, end)
        else:
            batch = self.between(start, end)
        return without_offsets(batch) if piece.dense else batch

    def _held_of(self, span: tuple[int, int], start: int, end: int) -> pa.RecordBatch:
        if self._held is None or self._held[0] != span:
            self._held = span, self.between(*span)
        low, first, behind = self._offsets.searchsorted((span[0], start, end)).tolist()
        return self._held[1].slice(first - low, behind - first)


def decoded(
    chunks: Sequence[Chunk], decode: Callable[[Chunk], pa.RecordBatch]
) -> tuple[list[pa.RecordBatch], list[tuple[Chunk, CorruptionError]]]:
    """The whole batches of a run, and the damaged ones."""
    batches: list[pa.RecordBatch] = []
    damaged: list[tuple[Chunk, CorruptionError]] = []
    for chunk in chunks:
        try:
            batches.append(decode(chunk))
        except FormatVersionError:
            raise
        except CorruptionError as error:
            if error.context.get("missing"):
                raise
            damaged.append((chunk, error))
    return batches, damaged


def run_offsets(batches: Sequence[pa.RecordBatch]) -> Numbers:
    """The offsets of the records of a run's batches, in the order of rows."""
    columns = [offsets_of(batch) for batch in batches]
    found = [np.asarray(numbers_of(column), np.int64) for column in columns if column is not None]
    return np.concatenate([np.zeros(0, np.int64), *found])
