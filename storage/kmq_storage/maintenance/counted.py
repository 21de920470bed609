"""Counting the messages of each queue up to an offset, for trims that drop these messages.

Directories of runs have the counts; records in no run yet are counted by their keys. Offsets are
counted in portions, so only the names and one number for each are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from operator import attrgetter

import numpy as np
import pyarrow as pa

from kmq_storage import limits
from kmq_storage.cutting import cut
from kmq_storage.errors import IllegalStateError
from kmq_storage.format.plain_columns import flags_of, number_column
from kmq_storage.format.queue_table import Beginnings, beginnings_of_all, grouped, overlaid
from kmq_storage.format.records import TELLING, keys_of
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.run_index import RunIndex
from kmq_storage.log.reading.scan import Slice, scan_places
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.ended import without_dead

#: The most bytes of queues' names in a trim, which have to fit into one binary column.
_NAMES_BYTES = (1 << 31) - 1
_NO_KEYS = pa.Table.from_batches(
    [], pa.schema([("key", pa.binary()), ("is_value", pa.bool_())])
)  # `empty_table()` would import pandas


@dataclass(frozen=True, slots=True)
class _Counts:
    """The counts of a portion of offsets, and the queues that begin anew there."""

    #: The number of each queue's messages; the names ascend.
    messages: Beginnings
    anew: Beginnings


def next_indexes(reader: ChunkReader, topic: Topic, partition: int, offset: int) -> Beginnings:
    """For each queue with messages before an offset, the index that a message there would have.

    CorruptionError when the log or a directory is damaged, so that the index is unknown.
    IllegalStateError when there are too many names.
    """
    known = Beginnings.none()
    start, index = topic.partition(partition).start, topic.index(partition)
    for hole in index.holes:
        if hole.start < offset and start < hole.end:
            index.check(topic.name, max(hole.start, start), min(hole.end, offset))
    key = topic.id, partition
    for in_run, rows in groupby(index.rows(start, offset), attrgetter("in_run")):
        places = [row.place(key) for row in rows]
        added: Iterable[_Counts]
        if in_run:
            added = (_of_run(RunIndex(reader, place, topic.name), offset) for place in places)
        else:
            slices = scan_places(
                *(reader, places, topic.name, partition, (start, offset)),
                batch_rows=limits.SORTED_ROWS,
                layout=topic.layout(TELLING),
            )
            added = map(_of_slices, cut(slices, attrgetter("rows"), limits.MERGED_ROWS))
        try:
            known = reduce(_added, added, known)
        except _TooManyNamesError as error:
            raise IllegalStateError(
                f"topic {topic.name}: the queues with messages before offset {offset} have more "
                f"than {_NAMES_BYTES} bytes of names, and a trim must keep the index of each; "
                "delete queues that are over, and trim up to behind that",
                topic=topic.name,
                offset=offset,
            ) from error
    return known


class _TooManyNamesError(Exception):
    """The names do not fit into one column."""


def _checked(*pieces: pa.Array) -> list[pa.Array]:
    """The names, checked to fit into one column."""
    if sum(piece.nbytes for piece in pieces) > _NAMES_BYTES:
        raise _TooManyNamesError
    return list(pieces)


def _column(names: Iterable[pa.Array]) -> pa.Array:
    return pa.concat_arrays(_checked(pa.nulls(0, pa.binary()), *names))


def _added(known: Beginnings, more: _Counts) -> Beginnings:
    _checked(known.names, more.anew.names)
    begun = overlaid(known, more.anew)
    names = grouped(pa.concat_arrays(_checked(begun.names, more.messages.names)))[0].names
    before, counts = begun.of_all(names), more.messages.of_all(names)
    indexes = np.maximum(before, 0) + np.maximum(counts, 0)
    kept = np.flatnonzero(indexes)
    return Beginnings(names.take(number_column(kept)), indexes[kept])


def _of_run(run: RunIndex, offset: int) -> _Counts:
    names = _column(run.names())
    return _Counts(
        Beginnings(names, run.counts(names, offset)), beginnings_of_all(run.beginnings())
    )


def _of_slices(parts: Sequence[Slice]) -> _Counts:
    """The counts of records that are in no run."""
    found = pa.concat_tables([_NO_KEYS, *(_keys_of(part) for part in parts)])
    keys = _column(found.column("key").chunks)
    is_value = flags_of(found.column("is_value").combine_chunks())
    kept, anew = without_dead(keys, np.flatnonzero(~is_value))
    table, _ = grouped(keys.filter(number_column(kept & is_value)))
    return _Counts(Beginnings(table.names, np.diff(table.starts)), anew)


def _keys_of(part: Slice) -> pa.Table:
    """The keys of records with a key, and whether each record has a value."""
    keys = keys_of(part.batch)
    if keys is None:
        return _NO_KEYS
    is_value = part.batch.column("value").is_valid()
    return pa.table([keys, is_value], schema=_NO_KEYS.schema).filter(keys.is_valid())
