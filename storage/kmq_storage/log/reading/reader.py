"""Reading the records at a place: map the file, verify the batch, cut it to the wanted offsets.

A reader needs only files and places, and no state of the store. Spark's executors read with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kmq_storage import paths
from kmq_storage.errors import CorruptionError, FormatVersionError, KmqError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.frame import part_of
from kmq_storage.format.layout import UNTYPED, Layout
from kmq_storage.format.manifest import Row
from kmq_storage.format.packing import Part, parts_of, with_parts
from kmq_storage.format.projection import read_columns
from kmq_storage.format.records import is_run, mismatch, offsets_of, read_batch, without_offsets
from kmq_storage.format.segment import SegmentFooter, decode_footer
from kmq_storage.log.disk_errors import unavailable
from kmq_storage.log.reading.proving import Prover
from kmq_storage.log.reading.runs import RunByOffset, decoded, pieces_of, run_offsets
from kmq_storage.log.reading.wanted_bytes import (
    near,
    ranges_of,
    spans,
    wanted_columns,
    wanted_ends,
    wanted_parts,
)
from kmq_storage.model import Chunk, Location, Place, RunPiece
from kmq_storage.objects.files import Files
from kmq_storage.objects.mapping import being_read, brought_in, is_readable

if TYPE_CHECKING:
    from kmq_storage.objects.read_cache import RemoteContents

#: The most bytes of files that stay mapped, and the number of files that stay mapped in any case:
#: chunks that are verified ahead may be in the next file.
_MAPPED_BYTES = 128 * 1024 * 1024
_MAPPED_FILES = 2
#: After this many bytes were read from maps, files are mapped anew: touched pages of a map count as
#: memory of the process, as long as a batch refers to the map.
_TOUCHED_BYTES = 64 * 1024 * 1024
#: The same limit for random reads: mapping a page anew takes ten times as long as reading it.
_KEPT_BYTES = 4 * 1024 * 1024 * 1024
_FOOTERS_KEPT = 256
#: How many bytes are brought into memory at once to read single records.
_NEAR_BYTES = 65_536
_OFFSETS = Layout(only=("offset",))


class ChunkReader:
    """Reads places, and keeps the last files mapped; for one thread at a time."""

    def __init__(self, files: Files, *, at_random: bool = False) -> None:
        """A reader of these files; `at_random` keeps more of them mapped for random reads."""
        self._files = files
        self._kept = _KEPT_BYTES if at_random else 0
        self._mapped: OrderedDict[str, pa.Buffer | RemoteContents] = OrderedDict()
        self._prover = Prover()
        self._mapped_bytes = 0
        self._touched_bytes = 0
        self._footers: OrderedDict[str, SegmentFooter] = OrderedDict()
        #: The address of a map, and the start and end of its bytes that are in memory.
        self._near = (0, 0, 0)
        #: Whether the next scan goes on behind a gap, probably in the same run.
        self.goes_on = False
        #: The messages of damaged batches of runs, in words, by file.
        self.told: dict[str, str] = {}
        #: The last run that was read by offsets, with its file and layout.
        self._run: tuple[str, Layout, RunByOffset] | None = None

    def chunks(self, place: Place, topic: str, partition: int) -> tuple[Chunk, ...]:
        """The record batches at a place; those of a segment are read from its footer.

        CorruptionError names topic, partition and offsets when the footer is damaged. Its context
        has `missing` when the file does not exist: the records may have moved.
        """
        if isinstance(place, Chunk):
            return (place,)
        try:
            footer = self.footer(place)
        except FormatVersionError:
            raise
        except CorruptionError as error:
            raise self._error_at(place, topic, partition, error) from error
        return pieces_of(place, footer) if is_run(place.columns) else footer.chunks

    def begin(self, location: Location) -> None:
        """Begin to read bytes of a file that is mapped, so that others can be read beside them."""
        contents = self._mapped.get(location.file)
        if isinstance(contents, pa.Buffer):
            being_read(part_of(contents, location.position, location.length))

    def footer(self, place: Place) -> SegmentFooter:
        """The footer of a segment; errors as for `chunks`."""
        file = place.location.file
        if file not in self._footers:
            self._footers[file] = self._read_footer(place)
            if len(self._footers) > _FOOTERS_KEPT:
                self._footers.popitem(last=False)
        return self._footers[file]

    def prefetch(self, places: Iterable[Place], layout: Layout = UNTYPED) -> bool:
        """Begin to fetch the places that are read next, up to a number of bytes.

        False where nothing has to be fetched; it is then no use to announce places early.
        """
        if not self._files.prefetch(()):
            return False
        soon = list(near(places, layout))
        self._files.prefetch(spans(soon, wanted_ends, layout))  # for all, before waiting for one
        known = [self._known(place, layout) for place in soon]
        return self._files.prefetch(spans(known, wanted_parts, layout))

    def prove_ahead(self, chunk: Chunk, layout: Layout) -> None:
        """Begin to verify a chunk that is read soon in another thread, where that is worth it."""
        if isinstance(chunk, RunPiece) or self._files.prefetch(()):
            return  # a run's batches are verified one by one; other chunks are being fetched
        try:
            chunk = self._with_parts(chunk, layout)
            parts = wanted_parts(chunk, layout)
            if self._prover.takes(parts):
                self._prover.begin(chunk.location, self._bytes(chunk.location), parts)
        except (CorruptionError, OSError):
            return  # the read that follows reports it

    def forget_proofs(self) -> None:
        """Nothing of what was begun is read soon."""
        self._prover.forget()
        if not self.goes_on and self._run is not None and self._run[2].damage is None:
            self._run = None

    def unmap_others(self, files: Collection[str]) -> None:
        """Keep only these mapped: what was removed stays on the disk as long as it is mapped."""
        for file in [each for each in self._mapped if each not in files]:
            self._unmap(file)

    def _read_footer(self, segment: Place) -> SegmentFooter:
        file = segment.location.file
        try:
            return self._proven_footer(segment)
        except CorruptionError:
            if not self._files.forget(file):
                raise
            self._unmap(file)
            return self._proven_footer(segment)

    def _proven_footer(self, segment: Place) -> SegmentFooter:
        file = segment.location.file
        return decode_footer(
            self.message(segment.location),
            file,
            paths.segment_id(file),
            columns=segment.columns,
            expected=segment.checksum,
        )

    def message(self, location: Location) -> pa.Buffer:
        """Bytes that the caller proves; errors as of `chunks`."""
        try:
            return brought_in(being_read(self._bytes(location)))
        except FileNotFoundError as error:
            file = location.file
            raise CorruptionError(f"segment {file} is missing", file=file, missing=True) from error
        except OSError as error:
            raise unavailable(error, self._files.url) from error

    def read(
        self,
        chunk: Chunk,
        start: int,
        end: int,
        *,
        topic: str = "",
        partition: int = -1,
        layout: Layout = UNTYPED,
    ) -> pa.RecordBatch:
        """The records of a chunk with offsets in [start, end), in the stored columns.

        There is an `offset` column only if the offsets have gaps. A typed topic's layout tells how
        its batches are read. CorruptionError when the bytes are damaged, as for `chunks`.
        """
        try:
            if isinstance(chunk, RunPiece):
                run = self._of_run(chunk, layout)
            else:
                batch = self._decode(chunk, layout)
        except (CorruptionError, OSError) as error:
            raise self._error_at(chunk, topic, partition, error) from error
        if not isinstance(chunk, RunPiece):
            return layout.current(_cut(batch, chunk, start, end))
        start, end = max(start, chunk.base_offset), min(end, chunk.end_offset)
        lost = run.lost_between(start, end)
        if lost is not None and run.damage is not None:
            place = replace(chunk, base_offset=lost[0], end_offset=lost[1])
            raise _damaged(place, topic, partition, run.damage) from run.damage
        if run.is_read(end):
            self._run = None
        return run.inside(chunk, start, end, goes_on=self.goes_on)

    def stored(self, chunk: Chunk, layout: Layout) -> pa.RecordBatch:
        """All records of a chunk, in the stored columns of a layout.

        CorruptionError names file and position, but neither topic nor offsets, when the bytes are
        damaged.
        """
        try:
            return self._decode(chunk, layout)
        except (CorruptionError, OSError) as error:
            raise self._lost(chunk, error) from error

    def _error_at(self, place: Place, topic: str, partition: int, error: Exception) -> KmqError:
        """The error for an unreadable place, with topic, partition and offsets."""
        lost = self._lost(place, error)
        return _damaged(place, topic, partition, lost) if type(lost) is CorruptionError else lost

    def _lost(self, place: Place, error: Exception) -> KmqError:
        """The error for an unreadable place, with file and position only."""
        if isinstance(error, CorruptionError) and "queues" in error.context:
            return error  # of a run
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            return unavailable(error, self._files.url)
        file = self._files.named(place.location.file)
        at = f", at byte {place.location.position}" if isinstance(place, Chunk) else ""
        if isinstance(error, CorruptionError):
            missing = {"missing": True} if error.context.get("missing") else {}
            return CorruptionError(f"{error.message}{at}", file=file, **missing)
        return CorruptionError(f"{file} is missing{at}", file=file, missing=True)

    def _of_run(self, piece: RunPiece, layout: Layout) -> RunByOffset:
        file = piece.location.file
        if self._run is None or self._run[:2] != (file, layout) or self._is_put_back(layout):
            self._run = None  # freed before the next run is read into memory
            self._files.prefetch(((file, piece.location.position, piece.location.length),))
            self._run = file, layout, self._by_offset(piece.batches, layout)
        return self._run[2]

    def _is_put_back(self, layout: Layout) -> bool:
        """Whether the run's first damaged batch is whole by now."""
        damaged = None if self._run is None else self._run[2].damaged
        try:
            return damaged is not None and bool(self._decode(damaged, layout))
        except CorruptionError:
            return False

    def _by_offset(self, chunks: Sequence[Chunk], layout: Layout) -> RunByOffset:
        """The records of a run; a damaged batch costs only its own."""
        batches, damaged = decoded(chunks, partial(self._decode, layout=layout))
        if not damaged:
            return RunByOffset(batches)
        damage, lost = self._damage_of(damaged), None
        if not batches:
            raise damage if "queues" in damage.context else damaged[0][1]
        with suppress(CorruptionError):  # the column of offsets is often whole
            lost = run_offsets([self._decode(chunk, _OFFSETS) for chunk, _ in damaged])
        return RunByOffset(batches, damaged[0][0], damage, lost)

    def _damage_of(self, damaged: Sequence[tuple[Chunk, CorruptionError]]) -> CorruptionError:
        """The error for the first of a run's damaged batches, with its queues."""
        from kmq_storage.log.reading.damaged_runs import with_queues  # only when needed

        chunk, error = damaged[0]
        lost, footer = self._lost(chunk, error), self._footers.get(chunk.location.file)
        return with_queues(lost, footer, [each for each, _ in damaged], self.message)

    def known_bytes(self, file: str, row: Row) -> bytes | None:
        """The bytes of a row's batch, if its file is mapped and they are valid; else None."""
        contents = self._mapped.get(file)
        if not isinstance(contents, pa.Buffer):
            return None
        start, end = row.position, row.position + row.length
        address, first, behind = self._near
        if not (first <= start and end <= behind and address == contents.address):
            self._bring_in(contents, start, end)
        message = part_of(contents, start, row.length).to_pybytes()
        return message if checksum(message) == row.checksum else None

    def _bring_in(self, contents: pa.Buffer, start: int, end: int) -> None:
        """Bring these bytes into memory, and those behind them, which are probably read next."""
        behind = min(max(end, start + _NEAR_BYTES), contents.size)
        if is_readable(part_of(contents, start, behind - start)):
            self._near = contents.address, start, behind
        else:
            brought_in(part_of(contents, start, end - start))

    def _decode(self, chunk: Chunk, layout: Layout) -> pa.RecordBatch:
        location = chunk.location
        known = location.file in self._mapped or self._prover.message(location) is not None
        try:
            return self._decode_now(chunk, layout)
        except CorruptionError:
            if not (self._files.forget(location.file) or known):
                raise
            # The file may have been replaced after a failed sync, or a server sent wrong bytes.
            self._unmap(location.file)
            return self._decode_now(chunk, layout)

    def _unmap(self, file: str) -> None:
        if file in self._mapped:
            self._mapped_bytes -= self._mapped.pop(file).size

    def _known(self, place: Place, layout: Layout) -> Place:
        """The place with its parts, so that they can be fetched; one fetched whole is unchanged."""
        if not isinstance(place, Chunk) or len(wanted_ends(place, layout)) != 2:
            return place
        try:
            return self._with_parts(place, layout)
        except (CorruptionError, OSError):
            return place  # the later read raises the error

    def _with_parts(self, chunk: Chunk, layout: Layout) -> Chunk:
        """The chunk with the parts that are told behind its message, if some columns are wanted."""
        ends = wanted_ends(chunk, layout)
        if not ends:
            return chunk
        message = self._bytes(chunk.location, ends)
        for part in ends:
            brought_in(message.slice(part.start, part.end - part.start))
        return with_parts(chunk, message)

    def _decode_now(self, chunk: Chunk, layout: Layout) -> pa.RecordBatch:
        whole = len(wanted_ends(chunk, layout)) == 1  # then the whole message was fetched
        chunk = self._with_parts(chunk, layout)
        file, columns = self._files.named(chunk.location.file), wanted_columns(chunk, layout)
        schema, parts = layout.stored(chunk.columns, file), parts_of(chunk, columns)
        message = self._prover.message(chunk.location)
        message = message or self._bytes(chunk.location, () if whole else parts)
        if not self._prover.holds(chunk.location, message, parts):
            raise mismatch(file)
        if columns is None:
            return read_batch(message, schema, file)
        return read_columns(message, schema, columns, file)

    def _bytes(self, location: Location, parts: Sequence[Part] = ()) -> pa.Buffer:
        """The bytes at a location; if `parts` are given, only these are fetched from a bucket."""
        start, length = location.position, location.length
        contents = self._contents(location, parts)
        if isinstance(contents, pa.Buffer):
            self._touched_bytes += length
        if start + length > contents.size:
            file = self._files.named(location.file)
            raise CorruptionError(f"{file} is shorter than its commit says", file=file)
        if isinstance(contents, pa.Buffer) or not parts:
            return contents.slice(start, length)
        return contents.parts(start, length, ranges_of(parts))

    def _contents(self, location: Location, parts: Sequence[Part]) -> pa.Buffer | RemoteContents:
        if self._touched_bytes > max(_TOUCHED_BYTES, self._kept):
            self._mapped.clear()
            self._mapped_bytes = self._touched_bytes = 0
        found = self._mapped.get(location.file)
        return self._map(location, parts) if found is None else found

    def _map(self, location: Location, parts: Sequence[Part]) -> pa.Buffer | RemoteContents:
        file, (start, end) = location.file, (ranges_of(parts) or [(0, location.length)])[0]
        first = (location.position + start, end - start)
        contents = self._mapped[file] = self._files.map(file, first)
        self._near = 0, 0, 0
        self._mapped_bytes += contents.size
        most = max(_MAPPED_BYTES, self._kept)
        while self._mapped_bytes > most and len(self._mapped) > _MAPPED_FILES:
            self._mapped_bytes -= self._mapped.popitem(last=False)[1].size
        return contents


def _cut(batch: pa.RecordBatch, chunk: Chunk, start: int, end: int) -> pa.RecordBatch:
    if not chunk.dense:
        offsets = offsets_of(batch)
        assert offsets is not None, "what has gaps has a column of offsets"
        first, behind = np.from_dlpack(offsets).searchsorted((start, end)).tolist()
        return batch.slice(first, behind - first)
    batch = without_offsets(batch)
    first = max(start - chunk.base_offset, 0)
    return batch.slice(first, min(end, chunk.end_offset) - chunk.base_offset - first)


def _damaged(place: Place, topic: str, partition: int, lost: CorruptionError) -> CorruptionError:
    whole = isinstance(place, Chunk) or lost.context.get("missing")
    anew = "" if whole else "let `kmq repair` write it anew if its batches are whole, "
    return CorruptionError(
        f"{topic}-{partition}, offsets {place.base_offset} to {place.end_offset - 1}: "
        f"{lost.message}; go on from offset {place.end_offset}, put the file back from a copy, "
        f"{anew}or give them up by `kmq repair --drop-damaged`",
        **lost.context,
        topic=topic,
        partition=partition,
        start=place.base_offset,
        end=place.end_offset,
    )
