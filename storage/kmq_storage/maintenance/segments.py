"""Replacing rows by segments: writing the segment and committing it.

- **Content**: a segment has all records of the rows that it replaces, at their offsets and in
  their order. Only compaction leaves records out, and a repair cuts some out. In keyed topics,
  sealing, merging, thinning and a trim in the same commit also leave records out.
- **The file is on disk before the commit** that names it.
- **Conflicts**: the commit names the state that it was planned on. Binding refuses it when the
  partition was sealed, rewritten, trimmed or cut since. The file is then removed, as no other
  process knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from kmq_storage import paths
from kmq_storage.errors import ConflictError, CorruptionError, KmqError, NotFoundError
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.manifest import Key
from kmq_storage.format.records import COMPACTED
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.maintenance.manner import Rest, no_rest
from kmq_storage.maintenance.replacement import Records, Replacement
from kmq_storage.maintenance.segment_files import write_segment, write_segments

#: Waits until a segment is on disk, and returns its entry.
Written: TypeAlias = Callable[[], SegmentEntry]


@dataclass(frozen=True, slots=True)
class Compacted:
    """What compaction notes of a segment."""

    #: As in `SegmentEntry`.
    tombstones: int

    def noted(self, entry: SegmentEntry) -> SegmentEntry:
        """The entry, marked as compacted."""
        return replace(entry, columns=entry.columns | COMPACTED, tombstones=self.tombstones)


#: The rows that a compacted segment replaces, its records, and what is noted of it.
NewCompacted: TypeAlias = tuple[Replacement, Records, Compacted]


class Replacer:
    """Carries out replacements in order. When killed, it leaves at most files without a name."""

    def __init__(self, log: CommitLog, rest: Rest = no_rest) -> None:
        check_writable(log.files)
        self._log = log
        self._rest = rest
        #: The last own commit per partition: later plans of this replacer stay valid after it.
        self._lsns: dict[Key, int] = {}

    def replace(
        self,
        replaced: Replacement,
        records: Records,
        compacted: Compacted | None = None,
        gaps: Sequence[GapEntry] = (),
    ) -> SegmentEntry | None:
        """Replace rows by a segment of these records; None when the partition changed meanwhile.

        `gaps` are committed together with the segment.
        """
        return self.put(replaced, partial(self.write, replaced, records), compacted, gaps)

    def write(self, replaced: Replacement, records: Records) -> SegmentEntry:
        """Write a segment that no commit names yet; several can be written in parallel.

        ClosedError, and no file, when the log is closed meanwhile.
        """
        log, file_id = self._log, new_file_id(self._log.environment.new_uuid(), replaced.lsn)
        return write_segment(log.files, file_id, replaced, records, check=self._between)

    def write_together(self, new: Iterable[tuple[Replacement, Records]]) -> list[SegmentEntry]:
        """As `write`, for several segments: all are written, or none."""
        files, new_uuid = self._log.files, self._log.environment.new_uuid
        named = ((new_file_id(new_uuid(), each.lsn), each, records) for each, records in new)
        return write_segments(files, named, check=self._between)

    def _between(self) -> None:
        self._rest()
        self._log.check_open()

    def put(
        self,
        replaced: Replacement,
        written: Written,
        compacted: Compacted | None = None,
        before: Sequence[GapEntry | TrimEntry] = (),
    ) -> SegmentEntry | None:
        """As `replace`, with a segment that `written` returns.

        The entries of `before` come before the segment's in the same commit.
        """
        try:
            entry = written()
        except CorruptionError as error:
            if error.context.get("missing") and self._is_outdated(replaced):
                return None  # another process replaced these rows, and collected the files
            raise
        if compacted is not None:
            entry = compacted.noted(entry)
        elif not before:
            _check_whole(replaced, entry)
        if self._commit([(entry, before)]):
            return entry
        self.give_up(lambda: [entry])
        return None

    def put_together(
        self, replaced: Iterable[Replacement], entries: Sequence[SegmentEntry]
    ) -> bool:
        """Commit segments that were written together; False, and no commit, if any can't be.

        The files stay: `put` commits those that can be committed one by one.
        """
        for each, entry in zip(replaced, entries, strict=True):
            _check_whole(each, entry)
        return self._commit([(entry, ()) for entry in entries])

    def compact_together(
        self, new: Sequence[NewCompacted], kept: Iterable[tuple[Replacement, Compacted]]
    ) -> list[SegmentEntry] | None:
        """As `replace` and `mark` for all of these with one commit; None, and no commit, if not.

        The result has the entries of the new segments.
        """
        entries = self.write_together((replaced, records) for replaced, records, _ in new)
        noted = [said.noted(entry) for entry, (*_, said) in zip(entries, new, strict=True)]
        marks = [said.noted(_as_it_is(segment)) for segment, said in kept]
        if self._commit([(entry, ()) for entry in noted], marks):
            return noted
        self.give_up(lambda: noted)
        return None

    def give_up(self, written: Callable[[], Sequence[SegmentEntry]]) -> None:
        """Remove segments that were not committed; if that fails, they are collected later."""
        with suppress(OSError, KmqError):
            files = (
                paths.segment_file(*_key(entry), entry.base_offset, entry.file_id)
                for entry in written()
            )
            self._log.files.remove(*files)

    def mark(self, segment: Replacement, compacted: Compacted) -> bool:
        """Mark a segment as compacted although it stays as it is; False if it changed."""
        return self._commit([], [compacted.noted(_as_it_is(segment))])

    def cut_out(self, gaps: Sequence[GapEntry]) -> bool:
        """Give up ranges of one partition; False when it changed meanwhile."""
        return self._commit([(gaps[-1], gaps[:-1])])

    def _commit(
        self,
        layouts: Sequence[tuple[SegmentEntry | GapEntry, Sequence[GapEntry | TrimEntry]]],
        marks: Sequence[SegmentEntry] = (),
    ) -> bool:
        """Commit entries, each with those that come before it; False when one is refused.

        `marks` are entries of segments that the log names already.
        """
        units = [Unit(self._on_own((*before, entry))) for entry, before in layouts]
        units += [Unit(self._on_own((entry,)), known=True) for entry in marks]
        try:
            lsn = self._log.commit(units).lsn
        except (ConflictError, NotFoundError):
            return False
        self._lsns.update(
            (_key(entry), lsn) for entry in (*(entry for entry, _ in layouts), *marks)
        )
        return True

    def _on_own(
        self, entries: Iterable[SegmentEntry | GapEntry | TrimEntry]
    ) -> tuple[SegmentEntry | GapEntry | TrimEntry, ...]:
        """Entries of a partition that are also planned on this replacer's own last commit there."""
        return tuple(
            replace(each, planned_lsn=max(self._lsns.get(_key(each), 0), each.planned_lsn))
            for each in entries
        )

    def _is_outdated(self, replaced: Replacement) -> bool:
        key = (replaced.topic.id, replaced.partition)
        topic = self._log.refresh().topic_by_id(key[0])
        planned = max(self._lsns.get(key, 0), replaced.lsn)
        return topic is None or topic.partition(key[1]).layout_lsn > planned


def _check_whole(replaced: Replacement, entry: SegmentEntry) -> None:
    if replaced.is_whole:
        lost, keyed = entry.old_rows - entry.rows, replaced.topic.settings.keyed
        assert lost >= 0 if keyed else not lost, "no record is lost, or there twice"


def _key(entry: SegmentEntry | GapEntry | TrimEntry) -> Key:
    return entry.topic_id, entry.partition


def _as_it_is(segment: Replacement) -> SegmentEntry:
    (row,), (old_rows, old_size) = segment.rows, segment.held
    return SegmentEntry(
        topic_id=segment.topic.id,
        partition=segment.partition,
        base_offset=row.base_offset,
        end_offset=row.end_offset,
        rows=row.rows,
        file_id=row.file,
        length=row.position + row.length,
        footer_position=row.position,
        footer_checksum=row.checksum,
        columns=row.columns,
        min_timestamp=row.min_timestamp,
        max_timestamp=row.max_timestamp,
        time=row.time,
        size=row.size,
        old_rows=old_rows,
        old_size=old_size,
        planned_lsn=segment.lsn,
    )
