"""Copying one partition, segment by segment, from where the last copy of it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias

from kmq_storage import limits
from kmq_storage.copying.definitions import mark_of, put_definition
from kmq_storage.copying.deletions import drop_deleted
from kmq_storage.copying.ends import records_behind
from kmq_storage.copying.history import check_history
from kmq_storage.cutting import cut
from kmq_storage.errors import ConflictError, CorruptionError, InvalidRequestError
from kmq_storage.format.entries import BatchIdEntry
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.manifest import SEGMENT, Row, weight_of
from kmq_storage.log.binding.binding import DuplicateCommitError, Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.index.manifest_rows import row_of_segment
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.moving import missing_file
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import moved
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Partition, Topic
from kmq_storage.maintenance.replacement import Replacement
from kmq_storage.maintenance.segment_files import tombstone_second, write_segment

_Entry: TypeAlias = SegmentEntry | GapEntry | TrimEntry


class PartitionCopy:
    """The copy of one partition."""

    def __init__(self, source: CommitLog, target: CommitLog, topic: Topic, number: int) -> None:
        self._source, self._target = source, target
        self._topic = topic
        self._number = number
        self._key = topic.id, number
        self._mark = mark_of(topic, number)
        self._reader, self._proof = ChunkReader(source.files), ChunkReader(target.files)
        copied = target.refresh().topic(topic.name).partition(number)
        self._position = _position(target.state, copied, topic, number, self._mark)

    def run(self) -> Iterator[SegmentEntry | GapEntry]:
        """Copy what is missing, in order; yields the entries that were committed in the target.

        Files that moved meanwhile are looked up again.
        """
        end, missing = self._topic.partition(self._number).end, None
        check_history(self._source, self._target, self._topic, self._number, self._position)
        while True:
            try:
                yield from self._until(end)
                return
            except CorruptionError as error:
                self._topic = moved(self._source, self._topic.id, error)
                if missing_file(error) == missing:
                    raise
                missing = missing_file(error)
                put_definition(self._target, self._topic)

    def _until(self, end: int) -> Iterator[SegmentEntry | GapEntry]:
        if self._position:
            drop_deleted(self._source, self._target, self._topic, self._number, self._position)
        part, index = self._topic.partition(self._number), self._topic.index(self._number)
        yield from self._skip_to(min(part.start, end))
        for gap in index.gaps_between(self._position, end):
            yield from self._records_until(gap.start)
            if self._position < gap.end:  # else it was copied with its run
                yield from self._gap(replace(gap, start=self._position))
        yield from self._records_until(end)

    def _skip_to(self, start: int) -> Iterator[GapEntry]:
        """Go on at the source's start.

        A new copy begins there, and an older one gets a gap up to there. An older copy of keyed
        queues is trimmed to it instead, because queues that ended in between would go on in it.
        """
        keyed, is_begun = self._topic.settings.keyed, self._topic.partition(self._number).is_begun
        begins = keyed and (start or is_begun)
        if self._position > start or (self._position == start and not begins):
            return
        gap = Gap(self._position, start, "trimmed in the source before they were copied")
        if self._position and not keyed:
            yield from self._gap(gap)
            return

        def begun(planned: int) -> list[_Entry]:
            held = self._target.state.topic(self._topic.name).partition(self._number)
            place, sums = (*self._key, start), (held.rows, held.size)
            missing = [gap.entry(self._key, planned)] if gap.start < gap.end else []
            return [*missing, TrimEntry(*place, *sums, planned)]

        if gap.start < gap.end:
            self._commit(begun, start)
        else:
            with suppress(ConflictError):  # another copy is faster
                self._target.commit([Unit(tuple(begun(self._target.refresh().lsn)))])

    def _gap(self, gap: Gap) -> Iterator[GapEntry]:
        entries = self._commit(lambda planned: [gap.entry(self._key, planned)], gap.end)
        yield from (each for each in entries if isinstance(each, GapEntry))

    def _records_until(self, end: int) -> Iterator[SegmentEntry | GapEntry]:
        index = self._topic.index(self._number)
        for run in _runs(index.rows(self._position, end)):
            behind = min(run[-1].end_offset, end)
            if run[-1].in_run:  # whole, as its records may be between thousands of gaps
                behind = run[-1].end_offset
            else:
                index.check(self._topic.name, self._position, behind)
            gaps = index.gaps_between(self._position, behind)
            inside = [replace(gap, end=min(gap.end, behind)) for gap in gaps]
            yield from self._segment(self._written(run, behind), inside, behind)

    def _segment(
        self, entry: SegmentEntry, inside: Sequence[Gap], behind: int
    ) -> Iterator[SegmentEntry | GapEntry]:
        # The segment follows the last record, so maintenance of earlier ones does not matter.
        def made(planned: int) -> list[_Entry]:
            gaps = (gap.entry(self._key, planned) for gap in inside)
            return [replace(entry, planned_lsn=planned), *gaps]

        entries = self._commit(made, behind)
        yield from (each for each in entries if not isinstance(each, TrimEntry))

    def _written(self, run: list[Row], behind: int) -> SegmentEntry:
        lsn = self._target.refresh().lsn
        piece = Replacement(
            self._topic, self._number, tuple(run), lsn, first=self._position, behind=behind
        )
        file_id = new_file_id(self._target.environment.new_uuid(), lsn)
        copied = self._target.state.topic(self._topic.name)
        records = records_behind(copied, self._proof, piece, self._reader)
        entry = write_segment(self._target.files, file_id, piece, records)
        _prove(self._proof, self._topic, self._number, entry)
        # Readers of the target must know that the topic has tombstones now.
        if self._topic.has_tombstones and not copied.has_tombstones:
            entry = replace(entry, tombstones=tombstone_second(run))
        return replace(entry, old_rows=0, old_size=0)

    def _commit(self, made: Callable[[int], list[_Entry]], behind: int) -> list[_Entry]:
        """Commit the entries that `made` returns for the LSN on which they are planned.

        They are made again when maintenance of the target was faster. Returns the entries, or none
        when another copy had committed them already.
        """
        mark = BatchIdEntry(self._mark, behind)
        while True:
            planned = self._target.refresh().lsn
            entries = made(planned)
            try:
                self._target.commit([Unit((mark, *entries), goes_on_at=self._position)])
            except DuplicateCommitError:
                entries = []
            except ConflictError as error:
                if "planned_lsn" not in error.context or not self._was_maintained(planned):
                    raise
                continue
            self._position = behind
            return entries

    def _was_maintained(self, planned: int) -> bool:
        """Whether a conflict was caused by maintenance of the target.

        InvalidRequestError when the partition was written to while it was copied.
        """
        state = self._target.refresh()
        copied = state.topic(self._topic.name).partition(self._number)
        end = _position(state, copied, self._topic, self._number, self._mark)
        return end == self._position and planned < copied.layout_lsn


def _position(state: StoreState, copied: Partition, topic: Topic, number: int, mark: str) -> int:
    """The end of the copy, where it goes on; InvalidRequestError if it was written to."""
    if copied.end != (state.batch_version(mark) or 0):
        raise InvalidRequestError(
            f"{topic.name}-{number} in the target was written to since it was copied; copy into "
            "another store",
            topic=topic.name,
            partition=number,
        )
    return copied.end


def _runs(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Segments one by one, and unsealed rows in runs that make one segment each."""
    for is_segment, some in groupby(rows, lambda row: row.kind == SEGMENT):
        alone = -1  # however small they are
        yield from cut(some, weight_of, alone if is_segment else limits.SEGMENT_BYTES)


def _prove(reader: ChunkReader, topic: Topic, number: int, entry: SegmentEntry) -> None:
    """Read a written segment back; CorruptionError when its bytes differ."""
    layout, name = topic.layout(), topic.name
    try:
        place = row_of_segment(entry).place((topic.id, number))
        for chunk in reader.chunks(place, name, number):
            span = (chunk.base_offset, chunk.end_offset)
            reader.read(chunk, *span, topic=name, partition=number, layout=layout)
    except CorruptionError as error:
        message = f"what was written to the target can't be read back: {error.message}"
        raise CorruptionError(message, **{**error.context, "missing": False}) from error
