"""The part of a read that is older than the log: the archive of the store has it.

Records that the log holds come from the log, older ones from the archive. The state is read first,
the archive's files after it. So records that were trimmed before that state are in the files, since
a trim follows the archive's group (docs/design/archive.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.options.task_limits import TaskLimits
from kmq_spark.datasource.planning.pieces import Pieces, divided, share_of
from kmq_spark.datasource.planning.ranges import OffsetRange, task_count
from kmq_spark.datasource.planning.topic_ranges import TopicRange
from kmq_spark.datasource.store_url import storage_options
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import to_datetime, to_microseconds

if TYPE_CHECKING:
    from kmq_spark.lake.reading import Archive, ArchivedRange


#: The most of a range of an archive, which is held in memory as a whole.
_RANGE_BYTES_MAX = 64 << 20
#: What to do about an archive that lacks files.
BRING_BACK = "bring its files back (in Delta, RESTORE a version of the table that has them)"
#: The first day that a datetime can hold.
_FIRST_DAY = to_microseconds(datetime(1, 1, 1, tzinfo=UTC))


@dataclass(frozen=True)
class ArchivedTask(InputPartition):
    """What one Spark task reads of an archive, in this order."""

    ranges: tuple[ArchivedRange, ...]


@dataclass(frozen=True)
class History:
    """An archive beside one state of the store it is of."""

    archive: Archive
    state: StoreState
    _times: dict[tuple[bytes, int], Mapping[int, int]] = field(default_factory=dict, repr=False)
    _lows: dict[tuple[bytes, int], int] = field(default_factory=dict, repr=False)
    _absent: dict[tuple[bytes, int], Sequence[tuple[int, int]]] = field(
        default_factory=dict, repr=False
    )

    def low(self, topic: Topic, number: int) -> int:
        """Return the first offset of a partition that the archive or the log holds.

        Without its group, an archive doesn't tell what it holds: then it is where the archive
        began. What was deleted from its beginning is given up as what is trimmed from a log.
        """
        begin, border = self._begin(topic, number), self.border(topic, number)
        if begin >= border or not _is_dense(topic):
            return begin
        key = topic.id, number
        if key not in self._lows:
            within = (topic.topic_id, number, begin, border)
            self._lows[key] = self.archive.first_held(topic.name, *within)
        return self._lows[key]

    def border(self, topic: Topic, number: int) -> int:
        """Return the offset up to which, exclusively, a partition is read from the archive.

        So the archive stands in also for what a repair cut out of the log.
        """
        _, end = self._archived(topic, number)
        first = topic.partition(number).first
        cut_out = [gap.end for gap in topic.index(number).gaps_between(first, end)]
        return max(min(end, max([first, *cut_out])), self._begin(topic, number))

    def _begin(self, topic: Topic, number: int) -> int:
        """Return the first offset of a partition that the archive or the log ever held."""
        first, end = self._archived(topic, number)
        start = topic.partition(number).first
        return min(first, start) if first < end or self._has(topic) else start

    def cut(self, wanted: TopicRange) -> tuple[OffsetRange, OffsetRange, OffsetRange] | None:
        """Split a range into what is lost, what the archive has, and the rest, in this order.

        None for a range that begins after the archive: it is read from the log alone.
        """
        topic, place = wanted.topic, wanted.offsets
        border = self.border(topic, place.partition)
        if place.start >= border or place.start > place.end:
            return None  # without a look at the files
        low = self.low(topic, place.partition)
        if low >= border:
            return None
        first, last = (min(max(each, place.start), place.end) for each in (low, border))
        return (
            place.between(place.start, first),
            place.between(first, last),
            place.between(last, place.end),
        )

    def absent(self, archived: ArchivedRange) -> list[tuple[int, int]]:
        """Return the offsets of a range that were archived, and that no file can have any more."""
        topic, number = self.state.topic_by_id(archived.topic_id.bytes), archived.partition
        if topic is None or not _is_dense(topic):
            return []
        key = topic.id, number
        if key not in self._absent:  # of the whole partition: a part doesn't tell
            low, (_, end) = self.low(topic, number), self._archived(topic, number)
            whole = self.archive.range(topic.name, topic.topic_id, number, low, end)
            less = low > self._begin(topic, number)
            self._absent[key] = whole.absent(days_are_gone=less)
        inside = (
            (max(low, archived.start), min(end, archived.end)) for low, end in self._absent[key]
        )
        return [(low, end) for low, end in inside if low < end]

    def split(self, wanted: Iterable[TopicRange]) -> tuple[list[ArchivedRange], list[TopicRange]]:
        """Divide into what the archive holds and the rest, of which the log may have lost some."""
        archived: list[ArchivedRange] = []
        rest: list[TopicRange] = []
        for each in wanted:
            parts, topic = self.cut(each), each.topic
            if parts is None:
                rest.append(each)
                continue
            below, old, behind = parts
            if old.size:
                at = (topic.topic_id, old.partition, old.start, old.end)
                archived.append(self.archive.range(topic.name, *at))
            rest += [TopicRange(topic, part) for part in (below, behind) if part.size]
        return archived, rest

    def bytes_per_row(self, topic: str) -> int:
        """Return the average bytes of a topic's records in the archive's files."""
        files = [each for each in self.archive.files_of(topic) if each.rows]
        return sum(each.bytes for each in files) // max(sum(each.rows for each in files), 1)

    def what_it_holds(self, topic: Topic, number: int) -> str:
        """Return the part of an error's message that says what the archive holds."""
        low, border = self.low(topic, number), self.border(topic, number)
        if low < border:
            return f", the archive {low} to {border}"
        if self._begin(topic, number) < border:
            return ", the archive nothing any more"
        if low == topic.partition(number).first:
            return ""
        group = self.archive.record.group
        return f", the archive nothing by its group {group} (if it was deleted, run the job again)"

    def first_since(self, topic: Topic, number: int, microseconds: int) -> int | None:
        """The first offset below the log's start with a timestamp from there on."""
        low, border = self.low(topic, number), self.border(topic, number)
        if low == border:
            return None
        found = self._first_since(topic, microseconds).get(number, border)
        return found if found < border else None

    def _first_since(self, topic: Topic, microseconds: int) -> Mapping[int, int]:
        """Return it for all partitions; cached, since a file holds records of several."""
        key = topic.id, microseconds
        if key not in self._times:
            when = _in_calendar(microseconds)
            self._times[key] = (
                {}
                if when is None
                else self.archive.first_since(
                    topic.name, topic.topic_id, range(topic.partitions), when
                )
            )
        return self._times[key]

    def _has(self, topic: Topic) -> bool:
        """Whether the archive is of this topic, though nothing of it may be archived yet."""
        return topic.topic_id.hex in self.archive.record.starts

    def _archived(self, topic: Topic, number: int) -> tuple[int, int]:
        record = self.archive.record
        committed = self.state.group_offsets(record.group).get(topic.id, {})
        return record.start(topic.topic_id, number), committed.get(number, 0)


def history_of(log: CommitLog, state: StoreState, path: str | None) -> History | None:
    """The archive at a path beside this state; None when no archive is read."""
    if path is None:
        return None
    from kmq_spark.lake.reading import open_archive  # slow to import, and few need it

    return History(open_archive(path, log.identity.store_id, storage_options(path)), state)


def _is_dense(topic: Topic) -> bool:
    """Whether a topic has a record at each offset: compaction leaves offsets without one."""
    return topic.settings.cleanup == "delete" and not topic.settings.keyed


def _in_calendar(microseconds: int) -> datetime | None:
    """Return the instant as files can hold it; None for one after the last day of the calendar.

    An instant before the first day becomes the first day.
    """
    try:
        return to_datetime(max(microseconds, _FIRST_DAY))
    except OverflowError:
        return None


def archived_tasks(ranges: Sequence[ArchivedRange], limits: TaskLimits) -> list[ArchivedTask]:
    """Plan tasks as `plan_tasks` does; a task holds one range after the other in memory."""
    if limits.min_partitions is not None or limits.max_records is not None:
        return _divided(ranges, limits)
    asked = share_of(limits.max_bytes) if limits.max_bytes else _RANGE_BYTES_MAX
    pieces, largest = _pieces(ranges), min(asked, _RANGE_BYTES_MAX)
    runs = pieces.balanced(task_count(pieces.total, os.cpu_count() or 1, largest))
    return [ArchivedTask(tuple(ranges[n].between(*at) for n, *at in run.tolist())) for run in runs]


def small_parts(ranges: Iterable[ArchivedRange]) -> list[ArchivedRange]:
    """Cut ranges into ones that fit into memory: a task may have far larger ones."""
    known = list(ranges)
    parts = _pieces(known).of_bytes(_RANGE_BYTES_MAX).tolist()
    return [known[number].between(*at) for number, *at in parts]


def _divided(ranges: Sequence[ArchivedRange], limits: TaskLimits) -> list[ArchivedTask]:
    # A range's number takes the place of its partition, so that its parts lead back to it.
    places = [OffsetRange(r.topic, n, r.start, r.end) for n, r in enumerate(ranges)]

    def archived(parts: Iterable[OffsetRange]) -> list[ArchivedRange]:
        return [ranges[part.partition].between(part.start, part.end) for part in parts]

    parts = divided(places, limits, lambda parts, _: _pieces(archived(parts)))
    return [ArchivedTask((each,)) for each in archived(parts)]


def _pieces(ranges: Sequence[ArchivedRange]) -> Pieces:
    rows = [(n, each.start, each.end, each.bytes, each.bytes) for n, each in enumerate(ranges)]
    return Pieces(*np.array(rows, np.int64).reshape(-1, 5).T)
