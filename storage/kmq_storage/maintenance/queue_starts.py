"""Trims of keyed topics, which keep the index at which each trimmed queue goes on.

At the offset before the first record that is kept, a trim puts a run. It has none of the dropped
records, but tells at which index each queue begins anew. The run is written before the commit that
raises the start, and this commit names it. So no queue ever loses its index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kmq_storage import limits
from kmq_storage.cached import cached_property
from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.layout_entries import SegmentEntry, TrimEntry
from kmq_storage.format.manifest import Row
from kmq_storage.format.plain_columns import no_rows, number_column, numbers_of
from kmq_storage.format.queue_table import Beginnings
from kmq_storage.format.records import offsets_of
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.run_index import RunIndex
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.counted import next_indexes
from kmq_storage.maintenance.replacement import Replacement
from kmq_storage.maintenance.runs import NO_QUEUES, BegunRun, RunMerge, Sorted, SortedRecords
from kmq_storage.maintenance.segments import Replacer


def last_row(topic: Topic, partition: int, start: int) -> Row | None:
    """The last row that begins before an offset, if rows up to it hold records; else None."""
    part, last, held = topic.partition(partition), None, 0
    for row in topic.index(partition).rows(part.start, start):
        last, held = row, held + row.rows
    return last if held else None


def begin_queues_at(
    log: CommitLog, reader: ChunkReader, topic: Topic, trim: TrimEntry
) -> SegmentEntry | None:
    """Commit a trim, so that the first record is behind `trim.start`.

    The offset `trim.start` belongs to the run that begins the queues. None when the partition
    changed meanwhile.
    """
    key, first = (topic.id, trim.partition), trim.start + 1
    rows = tuple(topic.index(trim.partition).rows(trim.start, first))
    if not rows:
        return None  # another process's trim was applied meanwhile
    replaced = Replacement(topic, trim.partition, rows, trim.planned_lsn, first=trim.start)

    def written() -> SegmentEntry:
        beginnings = next_indexes(reader, topic, key[1], first)
        kept = _Kept(replaced, reader, first, beginnings)
        return replacer.write(replaced, kept)

    replacer = Replacer(log)
    return replacer.put(replaced, written, before=(trim,))


def allow_trims(log: CommitLog, name: str) -> None:
    """Mark a keyed topic as trimmed, so that versions without this feature refuse it."""
    topic = log.written_state().topic(name)
    if topic.settings.keyed and not topic.settings.trims:
        settings = replace(topic.settings, trims=True)
        log.commit([Unit((TopicEntry(topic.id, name, topic.partitions, settings.to_json()),))])


def is_worth_it(topic: Topic, partition: int, start: int, expired: int | None) -> bool:
    """Whether a trim drops at least as many bytes as it writes, or very old records.

    Each trim rewrites the names of queues whose messages are gone. `expired` is the time (UTC us)
    before which commits are so old that they are dropped in any case.
    """
    part = topic.partition(partition)
    rows = list(topic.index(partition).rows(part.start, start))
    if not any(row.rows for row in rows):
        return False
    names = rows[0].bytes - rows[0].size if rows[0].in_run else 0
    if names <= limits.NAMES_BYTES or sum(row.held_from(part.start)[1] for row in rows) >= names:
        return True
    return expired is not None and any(row.rows and row.time < expired for row in rows)


class _Kept(SortedRecords):
    """The records of a row from an offset on, and the index at which each queue begins there."""

    def __init__(
        self, replaced: Replacement, reader: ChunkReader, first: int, beginnings: Beginnings
    ) -> None:
        self._replaced = replaced
        self._reader = reader
        self._first = first
        self._beginnings = beginnings

    @cached_property
    def _merged(self) -> RunMerge | None:
        """The records of the row, if it is a run; else None."""
        (row,) = self._replaced.rows
        if not row.in_run:
            return None
        topic = self._replaced.topic
        place = row.place((topic.id, self._replaced.partition))
        return RunMerge([RunIndex(self._reader, place, topic.name)], self._replaced.schema)

    @property
    def ranges(self) -> int:
        (row,) = self._replaced.rows
        return row.rows // limits.SORTED_ROWS + 2 if self._merged is None else self._merged.ranges

    def pieces(self) -> Iterator[Sorted]:
        schema = self._replaced.schema
        if self._replaced.span[1] == self._first:
            nothing = no_rows(schema)
            yield Sorted(nothing, NO_QUEUES, self._beginnings)
        elif self._merged is not None:
            for piece in self._merged.pieces():
                yield replace(self._since(piece), beginnings=self._beginnings)
        else:
            kept = replace(self._replaced, first=self._first)
            slices, rows = kept.slices(self._reader), kept.rows[0].rows
            yield from BegunRun(slices, schema, rows, self._beginnings).pieces()

    def _since(self, piece: Sorted) -> Sorted:
        """The records of a piece that are kept."""
        offsets = offsets_of(piece.records)
        assert offsets is not None, "runs have a column of offsets"
        kept = numbers_of(offsets) >= self._first
        table = piece.table.only(kept) if len(piece.table) else piece.table
        return Sorted(piece.records.filter(number_column(kept)), table)
