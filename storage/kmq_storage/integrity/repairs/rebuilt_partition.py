"""A partition of a store that lost its manifest: rows that were found are added to it in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter

import pyarrow as pa

from kmq_storage.format.manifest import Row
from kmq_storage.integrity.remains.segment_holes import lost_inside
from kmq_storage.integrity.remains.topics import KnownTopics
from kmq_storage.integrity.second_looks import whole_file
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import queue_of_log
from kmq_storage.objects.files import Files

_LOST = "the manifest was lost"
_BASE = attrgetter("base_offset")


class RebuiltPartition:
    """One partition; what is done to it is told as sentences."""

    def __init__(
        self, topic: Topic, number: int, known: KnownTopics, tell: Callable[[str], None]
    ) -> None:
        self._topic = topic
        self._name = f"{topic.name}-{number}"
        self._key = topic.id, number
        self._part = topic.partition(number)
        self._index = topic.index(number)
        self._known = known
        self._tell = tell
        #: The offset of its first record in the log, if the log has any.
        self._logged = known.ends.logged.get(self._key)

    def lay_out(self, files: Files) -> None:
        """Add found rows behind the known ones, up to where the log goes on."""
        part = self._part
        rows, later = self._told_apart()
        if (rows or later) and not self._known.is_older(self._key):
            self._begin(min(rows + later, key=_BASE))
        for row in rows:
            self._put(row)
        if later:  # commits in the log name these, and cover their offsets once they are read
            assert self._logged is not None, "only the log tells a row from a later one"
            self._pass_over(later[0].base_offset)
            self._count_later(later[0], self._logged)
            part.end = self._logged
        self._cut_where_segments_begin()
        self._note_holes([*rows, *later], files)

    def _told_apart(self) -> tuple[list[Row], list[Row]]:
        """The found rows that end before the log's records, and those that reach into them."""
        found = self._known.found
        rows = [row for row in found.rows.get(self._key, ()) if self._fits(row)]
        logged = self._logged
        if logged is None:
            return found.distinct(rows), []
        later = [row for row in rows if row.base_offset < logged < row.end_offset]
        rows = [row for row in rows if row.end_offset <= logged]
        return found.distinct(rows), sorted(later, key=_BASE)

    def _fits(self, row: Row) -> bool:
        """Whether a row ends behind the known rows, and begins there or where one of them does."""
        at, since = row.base_offset, self._part.end
        return row.end_offset > since and (
            at >= since or all(known.base_offset >= at for known in self._index.rows(at, at + 1))
        )

    def _begin(self, first: Row) -> None:
        """Begin at a row; in a keyed topic, at an offset without a record, unless that is 0."""
        part, settings = self._part, self._topic.settings
        is_begun = first.file in self._known.found.begun
        part.end = part.start = first.base_offset
        if settings.keyed and part.start and not is_begun:
            part.start -= 1
        part.is_begun = settings.trims and (part.start > 0 or is_begun)
        if part.start:
            self._tell_start()

    def _tell_start(self) -> None:
        self._tell(
            f"{self._name}: begins at offset {self._part.start}; before it all was trimmed, or is "
            "lost"
        )

    def _put(self, row: Row) -> None:
        """Add a row; it replaces the known rows that it overlaps."""
        self._pass_over(row.base_offset)
        part, index = self._part, self._index
        part.rows, part.size = part.rows + row.rows, part.size + row.size
        if row.base_offset < part.end:
            for each in list(index.rows(row.base_offset, part.end)):
                part.rows, part.size = part.rows - each.rows, part.size - each.size
            index.replace(row)
        else:
            index.append(row)
        part.end = row.end_offset

    def _pass_over(self, base: int) -> None:
        """Add a gap from the end of the partition up to an offset."""
        end = self._part.end
        if end < base:
            self._index.cut_out(Gap(end, base, _LOST))
            self._known.cut.add(self._key)
            self._tell_lost(end, base)
            self._part.end = base

    def _tell_lost(self, start: int, end: int) -> None:
        self._tell(f"{self._name}: offsets {start} to {end - 1} are in no file")

    def _count_later(self, later: Row, end: int) -> None:
        """Count the records before the log in a segment that reaches into it."""
        part = self._part
        known = list(self._index.rows(later.base_offset, part.end))
        behind_rows, behind_size = later.held_from(end)
        part.rows += max(later.rows - behind_rows - sum(each.rows for each in known), 0)
        part.size += max(later.size - behind_size - sum(each.size for each in known), 0)

    def _cut_where_segments_begin(self) -> None:
        """Cut a row where a segment named in the log begins within it.

        The segment's writer knew of a trim or gap before its begin, so earlier records are not
        valid.
        """
        part, index = self._part, self._index
        for at in self._known.ends.begins(self._key):
            row = next(index.rows(at - 1, at), None) if part.start < at < part.end else None
            if row is None or row.end_offset <= at or row.in_run:
                continue
            (rows, size), (left_rows, left_size) = row.held_from(part.start), row.held_from(at)
            part.drop(rows - left_rows, size - left_size)
            self._known.cut.add(self._key)
            if row.base_offset <= part.start:
                part.start = at
                index.drop_before(at)
                self._tell_start()
            else:
                index.cut_out(Gap(row.base_offset, at, _LOST))
                self._tell_lost(row.base_offset, at)

    def _note_holes(self, rows: list[Row], files: Files) -> None:
        """Note gaps where segments lack records, unless compaction may explain them."""
        end = self._part.end
        for row in rows:
            missing = row.end_offset - row.base_offset - row.rows
            lost = self._lost_inside(row, files) if missing > 0 else []
            for start, behind in lost:
                if start < end:
                    self._index.gaps.append(Gap(start, min(behind, end), _LOST))
                    self._tell_lost(start, behind)
            if missing > 0 and not lost:
                self._tell(
                    f"{self._name}: of offsets {row.base_offset} to {row.end_offset - 1} a segment "
                    f"has no record for {missing}; compaction left them out, or an earlier repair "
                    "gave them up: readers are not told of them any more"
                )

    def _lost_inside(self, row: Row, files: Files) -> list[tuple[int, int]]:
        """Lost offsets within a row; empty for a run, which does not tell, and an unreadable file.

        Unreadable records are cut out later.
        """
        contents = None if row.in_run else whole_file(files, row.path(self._key))
        with suppress(pa.ArrowException, OSError):
            is_queues = queue_of_log(self._topic.name) is not None
            return [] if contents is None else lost_inside(contents, row, is_queues=is_queues)
        return []

    def doubt_end(self, staged: int, inline: int) -> None:
        """Don't end before the real end; if that is unknown, end behind all possible offsets.

        That many records at most are `staged` in files or `inline` in commits that are lost.
        """
        part, known = self._part, self._known
        end = self._logged
        if end is None:
            end = max(part.end, known.ends.at_least.get(self._key, 0)) + inline + staged
        if part.end or known.is_older(self._key):
            self._pass_over(end)
        elif end:  # all that it had was given up long ago, or it had nothing
            part.start = part.end = end
            self._tell_start()
