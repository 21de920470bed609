"""The index of one run of a keyed topic: the rows of each queue, and their contents."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Generic

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.cached import cached_property
from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format.gathered import RowRanges, gathered, split
from kmq_storage.format.layout import UNTYPED, Layout
from kmq_storage.format.message_place import MessagePlace
from kmq_storage.format.queue_directory import BeginningList, Directory, Listed, Table
from kmq_storage.format.queue_table import Beginnings, QueueTable
from kmq_storage.format.segment import SegmentFooter
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.runs import run_offsets
from kmq_storage.model import Location, Place
from kmq_storage.objects.mapping import is_mapped

#: The only partition of a keyed topic.
_PARTITION = 0
#: How many blocks of a directory are cached, enough for a million queues.
_BLOCKS_KEPT = 256
#: A block is cached only if at most this many of its queues are asked for at once.
_FEW = 64
#: How many record batches have their values cached.
_BATCHES_KEPT = 8
#: Messages are read together from batches within this many bytes.
_TOGETHER_BYTES = 32 * 1024 * 1024
#: So many bytes of a queue's name are told.
_TOLD_BYTES = 100
_VALUES = Layout(only=("value",))
_OFFSETS = Layout(only=("offset",))


class _Blocks(Generic[Table]):
    """The blocks of one list; the last ones are cached."""

    def __init__(self, listed: Listed[Table], run: RunIndex) -> None:
        self.listed: Listed[Table] = listed
        self._run = run
        self._decoded: OrderedDict[int, Table] = OrderedDict()

    def __getitem__(self, block: int) -> Table:
        found = self._decoded.get(block)
        if found is None:
            found = self._decoded[block] = self.passing(block)
            if len(self._decoded) > _BLOCKS_KEPT:
                self._decoded.popitem(last=False)
        else:
            self._decoded.move_to_end(block)
        return found

    def begin(self, block: int) -> None:
        """Begin to read a block that is not cached."""
        if block >= 0 and block not in self._decoded:
            self._run.begin(self.listed.place(block))

    def passing(self, block: int) -> Table:
        """A block that is not added to the cache, for going through all blocks."""
        found = self._decoded.get(block)
        if found is not None:
            return found
        with self._run.telling():
            return self.listed.decoded(block, self._run.message(self.listed.place(block)))

    def __iter__(self) -> Iterator[Table]:
        return self.listed.tables(self.passing)


class RunIndex:
    """Looks up queues in the file of one run; for one thread at a time.

    CorruptionError names topic, offsets and file of the damage, for messages also their queues, and
    says what to do.
    """

    def __init__(self, reader: ChunkReader, place: Place, topic: str) -> None:
        self.place = place
        self._topic = topic
        self._reader = reader
        self._batches: OrderedDict[int, pa.Array] = OrderedDict()
        with self.telling():
            self._look(reader.footer(place))

    def _look(self, footer: SegmentFooter) -> None:
        """Read the list of the directory's blocks, which stays in memory."""
        place = self.place
        self._chunks = footer.chunks
        #: The first row of each batch, and the row behind the last one.
        self._bases = [chunk.base_offset - place.base_offset for chunk in footer.chunks]
        self._bounds = np.array([*self._bases, place.rows])
        assert footer.directory is not None, "a run has a directory"
        listed = self.message(footer.directory)
        self._directory = Directory(listed, footer.directory, self.file, place.rows)
        self._blocks = _Blocks[QueueTable](self._directory, self)
        self._anew: _Blocks[Beginnings] | None = None
        if footer.beginnings is not None:
            listed = self.message(footer.beginnings)
            beginnings = BeginningList(listed, footer.beginnings, self.file)
            self._anew = _Blocks[Beginnings](beginnings, self)

    @contextmanager
    def telling(self, named: Callable[[], str] = str) -> Iterator[None]:
        """A block in which errors of the file get topic and offsets; `named` adds the queues."""
        try:
            yield
        except FormatVersionError:
            raise
        except CorruptionError as error:
            place, missing = self.place, error.context.get("missing")
            raise CorruptionError(
                f"{self._topic}-{_PARTITION}, offsets {place.base_offset} to "
                f"{place.end_offset - 1}: {error.message}{'' if missing else named()}; put the "
                "file back from a copy, or give up what is damaged by `kmq repair --drop-damaged`",
                **{"file": self.file, **error.context},
                topic=self._topic,
                partition=_PARTITION,
                start=place.base_offset,
                end=place.end_offset,
            ) from error

    @property
    def file(self) -> str:
        """The name of the run's file."""
        return self.place.location.file

    def message(self, place: MessagePlace) -> pa.Buffer:
        """A message of the run's directory."""
        return self._reader.message(Location(self.file, place.position, place.length))

    def begin(self, place: MessagePlace) -> None:
        """Begin to read a message of the run's directory."""
        self._reader.begin(Location(self.file, place.position, place.length))

    @property
    def has_gaps(self) -> bool:
        """Whether some of the run's offsets have no record any more."""
        return not self.place.dense

    @property
    def first_row(self) -> int:
        """The first row that is a message; earlier rows belong to no queue."""
        return self._directory.first_row

    def block_starts(self) -> list[tuple[bytes, int]]:
        """The first name and row of each block of the directory."""
        return self._directory.starts()

    def row_from(self, name: bytes) -> int:
        """The first row of the first queue whose name is equal to or above this one."""
        block = self._directory.block_of(name)
        return self.first_row if block < 0 else self._blocks[block].row_from(name)

    def tables(self, first: int, behind: int) -> Iterator[QueueTable]:
        """The queues of rows [first, behind), which must not cut a queue."""
        for block in range(*self._directory.blocks_between(first, behind)):
            yield self._blocks.passing(block).between(first, behind)

    def records(
        self, first: int, behind: int, layout: Layout = UNTYPED
    ) -> Iterator[pa.RecordBatch]:
        """Rows in pieces, with all columns, or with their offsets and the columns of a layout."""
        low, high = (bisect_right(self._bases, row) for row in (first, behind - 1))
        self._reader.prefetch(self._chunks[low - 1 : high], layout)
        return self._parts(first, behind, layout)

    def names_between(self, first: int, behind: int) -> Iterator[pa.Array]:
        """The queue's name for each row in [first, behind) that is a message, in pieces."""
        first = max(first, self.first_row)
        for block in range(*self._directory.blocks_between(first, behind)):
            table = self._blocks.passing(block)
            low, high = max(first, int(table.starts[0])), min(behind, table.rows_end)
            yield table.names_between(low, high)

    def begin_rows_of(self, name: bytes) -> None:
        """Begin to read what `rows_of` needs."""
        self._blocks.begin(self._directory.block_of(name))

    def begin_values(self, first: int, behind: int) -> None:
        """Begin to read what `values` needs first."""
        low, high = (bisect_right(self._bases, row) - 1 for row in (first, behind - 1))
        for number in range(low, min(high + 1, low + _BATCHES_KEPT)):
            if number not in self._batches:
                self._reader.begin(self._chunks[number].location)

    def rows_of(self, name: bytes) -> tuple[int, int]:
        """The first row of a queue, and the row behind its last; equal if it has none."""
        block = self._directory.block_of(name)
        return (0, 0) if block < 0 else self._blocks[block].rows_of(name)

    @property
    def has_beginnings(self) -> bool:
        """Whether queues begin anew here, so that their messages in earlier runs are dead."""
        return self._anew is not None

    def beginning(self, name: bytes) -> int | None:
        """The index of a queue's first message here, if it begins anew; else None."""
        block = -1 if self._anew is None else self._anew.listed.block_of(name)
        return None if self._anew is None or block < 0 else self._anew[block].of(name)

    def beginnings_of(self, names: pa.Array) -> Numbers:
        """As `beginning`, for many queues, whose names must ascend; -1 for None."""
        found = np.full(len(names), -1)
        if self._anew is not None:
            for block, first, behind in self._anew.listed.blocks_of(names):
                some = names.slice(first, behind - first)
                found[first:behind] = self._anew[block].of_all(some)
        return found

    def beginnings(self) -> list[Beginnings]:
        """All queues that begin anew here, block by block."""
        return [] if self._anew is None else list(self._anew)

    def names(self) -> Iterator[pa.Array]:
        """The names of the run's queues, block by block."""
        return (table.names for table in self._blocks)

    def counts(self, names: pa.Array, before: int) -> Numbers:
        """The number of each queue's messages below an offset; the names must ascend."""
        first, behind = self.spans(names)
        counts = behind - first
        if before < self.place.end_offset:
            some = np.flatnonzero(counts)
            counts[some] = self._counts_below(before, first[some], behind[some])
        return counts

    def _counts_below(self, offset: int, first: Numbers, behind: Numbers) -> Numbers:
        """The number of offsets below another one in each of these ascending ranges of rows."""
        counts = np.zeros(len(first), np.int64)
        lows, highs = self._batches_of(first), self._batches_of(behind - 1)
        for number in _covered(lows, highs):
            start, end = self._bounds[number : number + 2].tolist()
            below = np.concatenate([[0], np.cumsum(self.offsets(start, end) < offset)])
            here = slice(highs.searchsorted(number), lows.searchsorted(number, "right"))
            low, high = (rows[here].clip(start, end) - start for rows in (first, behind))
            counts[here] += below[high] - below[low]
        return counts

    def lacks(self, names: pa.Array, offsets: Numbers) -> Mask:
        """Whether the run no longer has the message at each offset; the names must ascend."""
        first, behind = self.spans(names)
        some = first < behind
        lows, highs = self._batches_of(first[some]), self._batches_of(behind[some] - 1)
        spans = (self._bounds[number : number + 2].tolist() for number in _covered(lows, highs))
        found = [self.offsets(start, end) for start, end in spans]
        return ~np.isin(offsets, np.concatenate([np.zeros(0, np.int64), *found]))

    def _batches_of(self, rows: Numbers) -> Numbers:
        return self._bounds.searchsorted(rows, "right") - 1

    def spans(self, names: pa.Array) -> tuple[Numbers, Numbers]:
        """The first row of each queue, and the row behind its last; the names must ascend."""
        rows = np.zeros((2, len(names)), np.int64)
        for block, first, behind in self._directory.blocks_of(names):
            some = names.slice(first, behind - first)
            table = self._blocks.passing(block) if len(some) > _FEW else self._blocks[block]
            rows[:, first:behind] = table.spans(some)
        return rows[0], rows[1]

    def gathered(self, firsts: Numbers, counts: Numbers) -> Iterator[RowRanges]:
        """The values in some non-empty ranges of rows, from neighbouring batches at a time.

        Mapped values are not copied, so they take no memory of the process.
        """
        numbers, lows, counts = split(self._bounds, firsts, firsts + counts)
        together = self._together[numbers]
        borders = [0, *(np.flatnonzero(np.diff(together)) + 1).tolist(), len(numbers)]
        for low, high in pairwise(borders):
            if low < high:
                found = self._gathered(numbers[low:high], lows[low:high], counts[low:high])
                yield found if is_mapped(found.data[0]) else found.copied()

    def _gathered(self, numbers: Numbers, lows: Numbers, counts: Numbers) -> RowRanges:
        """The values in ranges of rows of these batches."""
        needed, of = np.unique(numbers, return_inverse=True)
        begins = self._bounds[needed]
        rows = np.cumsum(self._bounds[needed + 1] - begins)
        moved = np.concatenate([[0], rows[:-1]]) - begins
        return gathered(
            [self._values(number) for number in needed.tolist()], lows + moved[of], counts
        )

    @cached_property
    def _together(self) -> Numbers:
        """A number for each batch, which is the same for batches that are read together."""
        positions = np.array([chunk.location.position for chunk in self._chunks])
        return positions // _TOGETHER_BYTES

    def count(self, name: bytes, before: int) -> int:
        """The number of a queue's messages below an offset."""
        first, behind = self.rows_of(name)
        if before >= self.place.end_offset or first == behind:
            return behind - first
        if before <= self.place.base_offset:
            return 0
        return int(self.offsets(first, behind).searchsorted(before))

    def offsets(self, first: int, behind: int) -> Numbers:
        """The offsets of rows [first, behind)."""
        return run_offsets(list(self._parts(first, behind, _OFFSETS)))

    def offsets_at(self, rows: Numbers, borders: Numbers) -> Numbers:
        """The offsets of some rows, or others on the same side of each of these offsets."""
        start, end = self.place.base_offset, self.place.end_offset
        if not ((start <= borders) & (borders < end)).any():
            return np.full(len(rows), start)
        wanted, of = np.unique(rows, return_inverse=True)
        found, cuts = np.empty_like(wanted), wanted.searchsorted(self._bounds)
        for number in np.flatnonzero(np.diff(cuts)).tolist():
            first, behind = self._bounds[number : number + 2].tolist()
            some = slice(cuts[number], cuts[number + 1])
            found[some] = self.offsets(first, behind)[wanted[some] - first]
        return found[of]

    def values(self, first: int, behind: int) -> Iterator[pa.Array]:
        """The values of rows, in pieces; CorruptionError when they are damaged."""
        while first < behind:
            number = bisect_right(self._bases, first) - 1
            part = self._values(number).slice(first - self._bases[number], behind - first)
            yield part
            first += len(part)

    def _values(self, number: int) -> pa.Array:
        found = self._batches.get(number)
        if found is None:
            batch = self._stored(number, _VALUES)
            found = self._batches[number] = batch.column("value")
            if len(self._batches) > _BATCHES_KEPT:
                self._batches.popitem(last=False)
        return found

    def batch_end(self, row: int) -> int:
        """The row behind the batch of this row; all its rows share a checksum."""
        return int(self._bounds[bisect_right(self._bases, row)])

    def _stored(self, number: int, layout: Layout) -> pa.RecordBatch:
        with self.telling(lambda: self._queues_of(number)):
            return self._reader.stored(self._chunks[number], layout)

    def _queues_of(self, number: int) -> str:
        """The queues with messages in a batch, in words."""
        first, behind = self._bounds[number : number + 2].tolist()
        with suppress(CorruptionError):
            queues = [named_queue(self.queue_of(row)) for row in (first, behind - 1)]
            return f" (messages of the queues {queues[0]} to {queues[1]})"
        return ""

    def queue_of(self, row: int) -> bytes | None:
        """The queue of a row; None for a row that is no message."""
        return self._directory.queue_of(row, self._blocks.__getitem__)

    def _parts(self, first: int, behind: int, layout: Layout) -> Iterator[pa.RecordBatch]:
        """Rows as slices of batches."""
        while first < behind:
            number = bisect_right(self._bases, first) - 1
            batch = self._stored(number, layout)
            part = batch.slice(first - self._bases[number], behind - first)
            yield part
            first += part.num_rows


def named_queue(queue: bytes | None) -> str:
    """A queue in words, with a bounded part of its name."""
    if queue is None:
        return "no queue"
    return repr(queue) if len(queue) <= _TOLD_BYTES else f"{queue[:_TOLD_BYTES]!r}..."


def _covered(lows: Numbers, highs: Numbers) -> list[int]:
    """The numbers in any of these ranges, each from `lows` up to and with `highs`."""
    opened = np.bincount(lows, minlength=int(highs.max(initial=-1)) + 2)
    closed = np.bincount(highs + 1, minlength=len(opened))
    covered: list[int] = np.flatnonzero(np.cumsum(opened - closed)).tolist()
    return covered


def counts_in(runs: Iterable[RunIndex], names: pa.Array, before: int) -> Numbers:
    """The index that each queue's message at offset `before` has, as far as these runs tell.

    The names must ascend.
    """
    found = np.zeros(len(names), np.int64)
    for run in runs:
        if run.has_beginnings and run.place.base_offset <= before:
            anew = run.beginnings_of(names)
            found = np.where(anew < 0, found, anew)
        found += run.counts(names, before)
    return found
