"""Repair of damaged records: valid batches are written again, and the rest becomes gaps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.format.manifest import SEGMENT, STAGED, Key, Row
from kmq_storage.integrity.files.cut_out import cut_out
from kmq_storage.integrity.repairs.lost_queues import LostQueues
from kmq_storage.integrity.repairs.salvage import Salvage, salvage, slices_of
from kmq_storage.integrity.report import Damage
from kmq_storage.keyed.index import run_places
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.replacement import Records, Replacement
from kmq_storage.maintenance.runs import BegunRun
from kmq_storage.maintenance.segments import Replacer
from kmq_storage.model import Segment

_NO_FILE = paths.CHECKPOINT_FOLDER


class RecordsRepair:
    """Repairs the rows of one state whose files are damaged."""

    def __init__(self, log: CommitLog, damage: Sequence[Damage], *, drop_damaged: bool) -> None:
        self._log = log
        self._state = log.refresh()
        self._drop = drop_damaged
        self._damage = damage
        self._files = {each.file for each in damage}
        self._replacer = Replacer(log)
        self._reader = ChunkReader(log.files)
        #: Of the topic that is being repaired.
        self._queues = LostQueues(self._reader, "", ())

    def run(self) -> Iterator[str]:
        """Repair the rows; yields what was done, in words."""
        for topic in list(self._state.topics.values()):
            for number, part in enumerate(topic.parts):
                rows = self._damaged_rows(topic, number, (part.start, part.end))
                if rows and topic.settings.keyed:
                    self._queues = LostQueues(self._reader, topic.name, run_places(topic))
                for row in rows:
                    yield from self._row(topic, number, row)
                if self._drop:
                    yield from self._unnamed(topic, number)

    def _damaged_rows(self, topic: Topic, number: int, span: tuple[int, int]) -> list[Row]:
        key = (topic.id, number)
        try:
            rows = topic.index(number).rows(*span)
            return [row for row in rows if self._file(key, row) in self._files]
        except (CorruptionError, FileNotFoundError):
            return []  # the manifest itself could not be repaired

    def _file(self, key: Key, row: Row) -> str:
        return self._log.files.named(row.path(key))

    def _row(self, topic: Topic, number: int, row: Row) -> Iterator[str]:
        file = self._file((topic.id, number), row)
        if row.kind == SEGMENT:
            yield from self._segment(topic, number, row)
        elif self._drop and self._is_damaged(file, topic, number, row):
            yield from self._give_up(topic, number, [(row.base_offset, row.end_offset)], row)
        elif row.kind == STAGED and self._is_damaged_around(file):
            replaced = Replacement(topic, number, (row,), self._state.lsn)
            if self._replacer.replace(replaced, replaced.slices(self._reader)) is not None:
                yield f"{file}: its records were moved to a segment"

    def _is_damaged(self, file: str, topic: Topic, number: int, row: Row) -> bool:
        return any(
            each.file == file
            and (each.topic, each.partition) == (topic.name, number)
            and (each.start or 0) < row.end_offset
            and row.base_offset < (row.end_offset if each.end is None else each.end)
            for each in self._damage
        )

    def _is_damaged_around(self, file: str) -> bool:
        """Whether only bytes outside of a file's batches are damaged."""
        return not any(each.file == file and each.topic is not None for each in self._damage)

    def _segment(self, topic: Topic, number: int, row: Row) -> Iterator[str]:
        segment = row.place((topic.id, number))
        assert isinstance(segment, Segment), "a row of a segment"
        left = salvage(self._log.files, segment, topic, number)
        unknown = left.beginnings is None and topic.settings.trims
        if (left.missing or unknown) and not self._drop:
            return
        if unknown:
            yield f"{segment.location.file}: the indexes at which queues begin there are lost"
        begin = max(row.base_offset, topic.partition(number).start)
        first, missing = _kept(left, (begin, row.end_offset), trims=topic.settings.trims)
        if first == row.end_offset:
            missing = [(row.base_offset, row.end_offset)]
        lost = self._queues.of(segment, left.lost, missing) if row.in_run else None
        if first == row.end_offset:
            yield from self._give_up(topic, number, missing, row, lost)
            return
        gaps = self._gaps(topic, number, missing, lost)
        kept = row
        if first > begin:
            rows, size = row.held_from(begin)
            kept = replace(row, base_offset=first, rows=rows, size=size)
        rest = Replacement(topic, number, (kept,), self._state.lsn, gaps=len(missing))
        if self._replacer.replace(rest, self._rest(rest, segment, left), gaps=gaps) is not None:
            what = "whole batches were" if left.end is None else "record, an end, was"
            yield f"{segment.location.file}: its {what} written again"
            yield from self._lost(topic, number, row, gaps)

    def _rest(self, rest: Replacement, segment: Segment, left: Salvage) -> Records:
        """The records that are left of a segment; for a run, with where its queues begin anew."""
        topic, number = rest.topic, rest.partition
        whole = slices_of(self._reader, segment, left.whole, topic, number)
        slices = whole if left.end is None else [left.end]
        if not left.beginnings:
            return slices
        return BegunRun(slices, rest.schema, segment.rows, left.beginnings)

    def _unnamed(self, topic: Topic, number: int) -> Iterator[str]:
        """Give up offsets for which the manifest has no file."""
        spans = [
            (each.start, each.end)
            for each in self._damage
            if (each.file, each.topic, each.partition) == (_NO_FILE, topic.name, number)
            if each.start is not None and each.end is not None
        ]
        yield from self._give_up(topic, number, spans)

    def _give_up(
        self,
        topic: Topic,
        number: int,
        spans: Collection[tuple[int, int]],
        row: Row | None = None,
        lost: Sequence[bytes | None] | None = None,
    ) -> Iterator[str]:
        gaps = self._gaps(topic, number, spans, lost)
        if row is not None and gaps:
            part = topic.partition(number)
            rows, size = row.held_from(part.start)
            gaps[0] = replace(gaps[0], rows=min(rows, part.rows), size=min(size, part.size))
        if gaps and self._replacer.cut_out(gaps):
            yield from self._lost(topic, number, row, gaps)

    def _lost(
        self, topic: Topic, number: int, row: Row | None, gaps: Sequence[GapEntry]
    ) -> Iterator[str]:
        """What was cut out, in words; of a run its queues, whose messages are at any offsets."""
        if gaps and row is not None and row.in_run:
            file = self._file((topic.id, number), row)
            yield from (
                f"{file}: cut out: {each.reason}" for each in self._damage if each.file == file
            )
        for line in cut_out(topic, number, [(gap.start, gap.end) for gap in gaps]):
            yield f"{topic.name}-{number}: {line}"

    def _gaps(
        self,
        topic: Topic,
        number: int,
        spans: Collection[tuple[int, int]],
        lost: Sequence[bytes | None] | None = None,
    ) -> list[GapEntry]:
        """The entries of gaps; of a run each with the messages that are lost with it."""
        reason, place = "damaged", ((topic.id, number), self._state.lsn)
        told = zip(spans, lost or [None] * len(spans), strict=True)
        return [Gap(*span, reason, messages).entry(*place) for span, messages in told]


def _kept(
    left: Salvage, span: tuple[int, int], *, trims: bool
) -> tuple[int, Sequence[tuple[int, int]]]:
    """The first offset that stays, or the span's end if none does, and what is missing behind.

    Where queues begin anew, the first offset stays before their messages, as if it had no record.
    """
    first, end = span
    behind = [(max(low, first + 1), high) for low, high in left.missing if high > first + 1]
    is_enough = left.whole and left.missing[:1] == [(first, first + 1)]
    if left.beginnings and (trims or (behind and not is_enough)):
        return first, behind
    if not left.whole and left.end is None:
        return end, ()
    if left.missing and left.missing[0][0] == first:
        first = left.missing[0][1]
    return first, left.missing
