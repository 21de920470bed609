"""Making runs: the records of a keyed topic sorted by queue, with a directory of the queues.

Records that are no messages, because they have no key or no value, come first. Unsorted records are
sorted in memory, and runs are merged by ranges of names. Dead messages are left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kmq_storage import limits
from kmq_storage.format.manifest import Row
from kmq_storage.format.plain_columns import flags_of, no_rows, number_column
from kmq_storage.format.queue_table import Beginnings, QueueTable, grouped, merged, overlaid
from kmq_storage.format.records import timestamps_of, with_light_nulls, with_nulls, without_offsets
from kmq_storage.format.scattered import PackedNumbers, takeable
from kmq_storage.format.segment import SealedBatch
from kmq_storage.log.reading.run_index import RunIndex
from kmq_storage.log.reading.scan import Slice
from kmq_storage.maintenance.ended import LastBeginnings, without_dead
from kmq_storage.objects.allocators import give_back

if TYPE_CHECKING:
    from kmq_storage.format.row_order import Order


@dataclass(frozen=True, slots=True)
class Sorted:
    """A piece of a run: records sorted by queue, and their queues."""

    records: pa.RecordBatch
    #: The queues, with row numbers relative to this piece.
    table: QueueTable
    #: The queues that begin anew in the run; one of the pieces has them all.
    beginnings: Beginnings = field(default_factory=Beginnings.none)


def sorted_records(slices: Iterable[Slice], schema: pa.Schema, most: int) -> Iterator[Sorted]:
    """The records of slices sorted by queue, in pieces of at most `most` rows.

    The first piece has the records that belong to no queue, and the table of all queues.
    """
    parts = [part for part in slices if part.rows]
    rest = pa.schema([field for field in schema if field.name != "offset"])
    records = pa.Table.from_batches(
        [with_nulls(without_offsets(part.batch), rest) for part in parts], rest
    )
    order, table, beginnings = _order(records)
    give_back()  # free the memory that sorting names took
    scattered = _Scattered(records, _offsets(parts))
    others = len(order) - table.rows
    keys = records.column("key")
    keys = keys.take(number_column(order[:others])) if others else keys.slice(0, 0)
    yield Sorted(scattered.taken(order[:others], keys.combine_chunks(), schema), table, beginnings)
    for first in range(others, len(order), most):
        rows = order[first : first + most]
        keys = table.names_between(first, first + len(rows))
        yield Sorted(scattered.taken(rows, keys, schema), NO_QUEUES)


def _offsets(parts: Sequence[Slice]) -> PackedNumbers:
    """The offsets of consecutive, non-empty slices."""
    if parts:
        first, last = parts[0].offset_of(0), parts[-1].offset_of(parts[-1].rows - 1)
        if last - first + 1 == sum(part.rows for part in parts):
            return PackedNumbers(first, None)
    return PackedNumbers.of([part.offsets() for part in parts])


class _Scattered:
    """Records in several pieces, which can be taken in any order without joining the pieces."""

    def __init__(self, records: pa.Table, offsets: PackedNumbers) -> None:
        self._offsets = offsets
        self._columns = {
            name: takeable(records.column(name))
            for name in records.column_names
            if name != "key" and records.column(name).null_count < records.num_rows
        }

    def taken(self, rows: Order, keys: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
        """Some rows, whose keys are given, with the columns of a segment."""
        found = {name: column.take(rows) for name, column in self._columns.items()}
        offsets = number_column(self._offsets.take(rows))
        batch = pa.RecordBatch.from_pydict({"offset": offsets, "key": keys, **found})
        return with_nulls(batch, schema)


def _order(records: pa.Table) -> tuple[Order, QueueTable, Beginnings]:
    keys = records.column("key")
    named = flags_of(keys.is_valid().combine_chunks())
    valid = flags_of(records.column("value").is_valid().combine_chunks())
    are_messages = named & valid
    if are_messages.all():
        table, order = grouped(keys)
        return order, table, Beginnings.none()
    keys = keys.combine_chunks()
    kept, beginnings = without_dead(keys, np.flatnonzero(named & ~valid))
    others = np.flatnonzero(~are_messages & kept)
    messages = np.flatnonzero(are_messages & kept)
    table, order = grouped(keys.take(number_column(messages)))
    return np.concatenate([others, messages[order]]), table.moved(len(others)), beginnings


def _batch(records: pa.Table) -> pa.RecordBatch:
    found = records.combine_chunks().to_batches()
    return found[0] if found else no_rows(records.schema)


class SortedRecords(ABC):
    """Records that are sorted by queue."""

    @property
    @abstractmethod
    def ranges(self) -> int:
        """The most pieces that there can be."""

    @abstractmethod
    def pieces(self) -> Iterator[Sorted]:
        """The records in pieces; those that belong to no queue come first."""


class RunMerge(SortedRecords):
    """The records of neighbouring runs, merged by ranges of names."""

    def __init__(
        self,
        runs: Sequence[RunIndex],
        schema: pa.Schema,
        forgotten: int = 0,
        ended: pa.Array | None = None,
    ) -> None:
        """Merge these runs.

        Ends in the first `forgotten` runs are dropped. Queues in `ended` end behind the runs, so
        nothing of them is kept.
        """
        self._runs = runs
        self._schema = schema
        self._last = LastBeginnings(runs, forgotten, ended)
        names = _borders(runs)
        #: For each run, the rows at which the ranges of names begin, and the end.
        self._rows = [[0, run.first_row, *map(run.row_from, names), run.place.rows] for run in runs]

    @property
    def ranges(self) -> int:
        """As `SortedRecords.ranges`."""
        return len(self._rows[0])

    def pieces(self) -> Iterator[Sorted]:
        """As `SortedRecords.pieces`."""
        others, *spans = zip(*(pairwise(rows) for rows in self._rows), strict=True)
        yield self._others(others)
        yield from (self._piece(span) for span in spans if any(low < high for low, high in span))

    def _others(self, spans: Sequence[tuple[int, int]]) -> Sorted:
        found = [pa.Table.from_batches([], self._schema)]
        for number, (run, span) in enumerate(zip(self._runs, spans, strict=True)):
            if span[0] < span[1]:
                records = pa.Table.from_batches(list(run.records(*span)), self._schema)
                found.append(self._last.without_ends(number, records))
        records = _batch(pa.concat_tables(found))
        return Sorted(records, NO_QUEUES, self._last.kept())

    def _piece(self, spans: Sequence[tuple[int, int]]) -> Sorted:
        records: list[pa.Table] = []
        tables: list[QueueTable] = []
        for number, (run, span) in enumerate(zip(self._runs, spans, strict=True)):
            found = pa.Table.from_batches(list(run.records(*span)), self._schema)
            for table in run.tables(*span):
                alive = self._last.alive(number, table)
                rows = found.slice(int(table.starts[0]) - span[0], table.rows)
                records.append(rows if alive.all() else rows.filter(number_column(alive)))
                tables.append(table if alive.all() else table.only(alive))
        table, order = merged(tables)
        return Sorted(_batch(pa.concat_tables(records).take(number_column(order))), table)


class BegunRun(SortedRecords):
    """Records in the order of offsets, for a run whose queues begin at given indexes."""

    def __init__(
        self, slices: Iterable[Slice], schema: pa.Schema, rows: int, beginnings: Beginnings
    ) -> None:
        """Take at most `rows` records; queues that end among them begin at index 0."""
        self._slices = slices
        self._schema = schema
        self._rows = rows
        self._beginnings = beginnings

    @property
    def ranges(self) -> int:
        """As `SortedRecords.ranges`."""
        return self._rows // limits.SORTED_ROWS + 2

    def pieces(self) -> Iterator[Sorted]:
        """As `SortedRecords.pieces`."""
        found = sorted_records(self._slices, self._schema, limits.SORTED_ROWS)
        first = next(found)
        yield replace(first, beginnings=overlaid(self._beginnings, first.beginnings))
        yield from found


NO_QUEUES = QueueTable(pa.nulls(0, pa.binary()), np.zeros(1, np.int64))


def piece_rows(rows: int, size: int) -> int:
    """How many rows to have in memory at a time, if `rows` of them have `size` bytes."""
    return max(1, min(limits.MERGED_ROWS, limits.MERGED_BYTES * rows // max(size, 1)))


def _borders(runs: Sequence[RunIndex]) -> list[bytes]:
    """The names at which ranges begin, so that each range fits into memory, about."""
    size, rows = (
        sum(count) for count in zip(*((r.place.size, r.place.rows) for r in runs), strict=True)
    )
    most = piece_rows(rows, size)
    blocks = sorted(
        (name, behind - row)
        for run in runs
        for (name, row), (_, behind) in pairwise([*run.block_starts(), (b"", run.place.rows)])
    )
    borders: list[bytes] = []
    gathered = 0
    for name, count in blocks:
        if gathered and gathered + count > most and (not borders or name > borders[-1]):
            borders.append(name)
            gathered = 0
        gathered += count
    return borders


def batch_rows(rows: Sequence[Row]) -> int:
    """The number of records in a run's batches: few, so that a look at one queue reads little.

    Pieces should be multiples of it, as the last batch of each piece is shorter otherwise.
    """
    count = max(sum(row.rows for row in rows), 1)
    weight = max(sum(row.weight for row in rows), 1)
    return min(max(limits.RUN_BATCH_BYTES * count // weight, 1), limits.RUN_BATCH_ROWS)


def _bounds(records: pa.RecordBatch, firsts: Sequence[int]) -> tuple[list[int], list[int]]:
    """The lowest and highest timestamp of the records between neighbouring `firsts`."""
    if not firsts:
        return [], []
    times = np.from_dlpack(timestamps_of(records))
    return np.minimum.reduceat(times, firsts).tolist(), np.maximum.reduceat(times, firsts).tolist()


class RunBatches:
    """Makes the record batches of a run from its pieces, and collects its queues."""

    def __init__(self, rows: Sequence[Row], pieces: int) -> None:
        count = max(sum(row.rows for row in rows), 1)
        self._step = batch_rows(rows)
        #: The most batches.
        self.most = count // self._step + pieces + 1
        self._per_row = sum(row.size for row in rows) / count
        self._done = 0
        self._tables: list[QueueTable] = []
        self._beginnings = Beginnings.none()

    def sealed(self, base: int, pieces: Iterable[Sorted]) -> Iterator[SealedBatch]:
        """The batches of a run that begins at offset `base`; their offsets are row numbers."""
        for piece in pieces:
            if len(piece.beginnings):
                self._beginnings = piece.beginnings
            self._tables.append(piece.table.moved(self._done + int(piece.table.starts[0])))
            firsts = range(0, piece.records.num_rows, self._step)
            for first, low, high in zip(firsts, *_bounds(piece.records, firsts), strict=True):
                batch = with_light_nulls(piece.records.slice(first, self._step))
                yield self._sealed(base, batch, low, high)

    def _sealed(self, base: int, batch: pa.RecordBatch, low: int, high: int) -> SealedBatch:
        first, behind = self._done, self._done + batch.num_rows
        self._done = behind
        size = round(self._per_row * behind) - round(self._per_row * first)
        return SealedBatch(base + first, base + behind, batch, low, high, size)

    def queues(self) -> Iterator[QueueTable]:
        """The queues of all batches so far, with their rows."""
        return (table for table in self._tables if len(table))

    def beginnings(self) -> Beginnings:
        """The queues that begin anew in the run."""
        return self._beginnings
