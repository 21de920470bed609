"""Copying topics from one store to another, for example from a disk to a bucket and back.

A copied topic keeps its id, offsets, timestamps and content. It is copied segment by segment. Each
segment is committed together with the offset at which it ends, so an interrupted copy goes on where
it stopped. Every record batch is verified when it is read, and again after it was written.

- **Lost records** of the source are a gap in the copy, as in the source. So are records that the
  source trimmed before they were copied.
- **Copied records stay**, even if the source trims them later. In a keyed topic, they stay only as
  long as the copy keeps up with the source.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from kmq_storage import limits
from kmq_storage.copying.deletions import drop_deleted
from kmq_storage.copying.ends import records_behind
from kmq_storage.copying.history import check_history
from kmq_storage.copying.queues import copy_queues, queues_of
from kmq_storage.cutting import cut
from kmq_storage.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptionError,
    InvalidRequestError,
    KmqWarning,
)
from kmq_storage.format.entries import BatchIdEntry, GroupOffsetsEntry, TopicEntry
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.manifest import SEGMENT, Row, weight_of
from kmq_storage.groups.administration import has_live_member
from kmq_storage.log.binding.binding import DuplicateCommitError, Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.log.index.manifest_rows import row_of_segment
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.moving import missing_file
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import moved
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Partition, Topic
from kmq_storage.maintenance.checkpointing import check_undamaged
from kmq_storage.maintenance.replacement import Replacement
from kmq_storage.maintenance.segment_files import tombstone_second, write_segment
from kmq_storage.names import queue_log, queue_of_log

_Entry: TypeAlias = SegmentEntry | GapEntry | TrimEntry


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What one call copied, without what earlier calls copied."""

    topics: int
    segments: int
    rows: int
    #: Bytes of the segments written.
    bytes: int
    #: Ranges of offsets without records, which the source had lost or trimmed before the copy.
    gaps: int
    #: Queues whose state was brought up to that of the source.
    queues: int = 0


def copy_topics(
    source: CommitLog, target: CommitLog, names: Iterable[str] | None = None
) -> CopyReport:
    """Copy all topics, or those with given names, and the offsets of their groups.

    Queues are copied only together with all topics. A reader of the target sees each partition grow
    in order. Offsets of groups only move forward.

    - **AlreadyExistsError**: the target has another topic with the same name.
    - **InvalidRequestError**: the copy was written to or deleted in the target, the source has
      other records than were copied, or both are one store.
    - **CorruptionError**: the source is damaged; all that can be read before the damage is copied.
    - **IllegalStateError**: the target is read-only.
    """
    check_writable(target.files)
    _check_two_stores(source, target)
    state = source.refresh()
    queues, lsn = (queues_of(source) if names is None else []), state.lsn
    topics = _wanted(state, names) + [state.topic(queue_log(queue.name)) for queue in queues]
    copied = _copy_records(source, target, state, topics)
    _copy_groups(state, target, topics)
    put = copy_queues(queues, lsn, target)
    if names is None:
        check_undamaged(state)  # damage may hide whole topics, groups and queues
    segments = [each for each in copied if isinstance(each, SegmentEntry)]
    return CopyReport(
        topics=len(topics) - len(queues),
        segments=len(segments),
        rows=sum(each.rows for each in segments),
        bytes=sum(each.length for each in segments),
        gaps=len(copied) - len(segments),
        queues=put,
    )


def _check_two_stores(source: CommitLog, target: CommitLog) -> None:
    if source.identity.store_id == target.identity.store_id:
        raise InvalidRequestError(
            f"{source.files.url} and {target.files.url} are one store, or files that were copied "
            "from one to the other; give a target that is none yet, or one that kmq copied to"
        )


def _wanted(state: StoreState, names: Iterable[str] | None) -> list[Topic]:
    if names is None:
        return state.user_topics()
    return [state.topic(name) for name in dict.fromkeys(names)]


def _copy_records(
    source: CommitLog, target: CommitLog, state: StoreState, topics: Sequence[Topic]
) -> list[SegmentEntry | GapEntry]:
    copied: list[SegmentEntry | GapEntry] = []
    for topic in topics:
        try:
            copied.extend(_copied(source, target, topic))
        except InvalidRequestError as error:  # a group received from these queues in the target
            what = state.keeps_accounts(topic)
            if what is None:
                raise
            told = f"{what} stays as it is in {target.files.url}: {error.message}"
            warnings.warn(told, KmqWarning, stacklevel=3)
        for number in range(topic.partitions):
            state.check_end(topic.name, number)
    return copied


def _copied(
    source: CommitLog, target: CommitLog, topic: Topic
) -> Iterator[SegmentEntry | GapEntry]:
    _make(target, topic)
    for number in range(topic.partitions):
        yield from _PartitionCopy(source, target, topic, number).run()


def _make(target: CommitLog, topic: Topic) -> None:
    state = target.refresh()
    found = state.find_topic(topic.name)
    if found is not None:
        _check_is_copy(found, topic, target.files.url)
    else:
        _check_was_not_deleted(state, topic, target.files.url)
    definition = TopicEntry(topic.id, topic.name, topic.partitions, topic.settings.to_json())
    if found is None or (found.partitions, found.settings) != (topic.partitions, topic.settings):
        target.commit([Unit((definition,))])


def _check_is_copy(found: Topic, topic: Topic, url: str) -> None:
    """AlreadyExistsError for another topic, InvalidRequestError for a copy that was changed."""
    if found.id != topic.id:
        raise AlreadyExistsError(
            f"Topic[{topic.name}] exists already in {url}, and is no copy of this one; delete it "
            "there, or copy into another store",
            topic=topic.name,
        )
    versions = len(topic.settings.schemas)
    known = found.settings.schemas[:versions] == topic.settings.schemas
    for what, ahead in (
        (f"{found.partitions} partitions", found.partitions > topic.partitions),
        ("a newer schema", known and len(found.settings.schemas) > versions),
    ):
        if ahead:
            raise InvalidRequestError(
                f"Topic[{topic.name}] of {url} was changed since it was copied: it has {what}; "
                "change the source likewise, or copy into another store",
                topic=topic.name,
            )


def _check_was_not_deleted(state: StoreState, topic: Topic, url: str) -> None:
    """InvalidRequestError for a copy that was deleted, since its offsets were already used."""
    marks = (_mark(topic, number) for number in range(topic.partitions))
    if any(state.batch_version(mark) for mark in marks):
        queue = queue_of_log(topic.name)
        what = f"Topic[{topic.name}]" if queue is None else f"Queue[{queue}]"
        raise InvalidRequestError(
            f"{what} was deleted in {url} since it was copied, and is not copied there again; "
            "copy into another store, or the other topics alone (`kmq copy --topic`)",
            topic=topic.name,
        )


def _mark(topic: Topic, number: int) -> str:
    """The application that stands for the copy of a partition; its batch is the end offset."""
    return f"copy/{topic.id.hex()}/{number}"


class _PartitionCopy:
    """The copy of one partition."""

    def __init__(self, source: CommitLog, target: CommitLog, topic: Topic, number: int) -> None:
        self._source, self._target = source, target
        self._topic = topic
        self._number = number
        self._key = topic.id, number
        self._mark = _mark(topic, number)
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
                _make(self._target, self._topic)

    def _until(self, end: int) -> Iterator[SegmentEntry | GapEntry]:
        if self._position:
            drop_deleted(self._source, self._target, self._topic, self._number, self._position)
        part, index = self._topic.partition(self._number), self._topic.index(self._number)
        yield from self._skip_to(min(part.start, end))
        for gap in index.gaps_between(self._position, end):
            yield from self._records_until(gap.start)
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

    def _records_until(self, end: int) -> Iterator[SegmentEntry]:
        for run in _runs(self._topic.index(self._number).rows(self._position, end)):
            behind = min(run[-1].end_offset, end)
            self._topic.index(self._number).check(self._topic.name, self._position, behind)
            yield from self._segment(self._written(run, behind), behind)

    def _segment(self, entry: SegmentEntry, behind: int) -> Iterator[SegmentEntry]:
        # The segment follows the last record, so maintenance of earlier ones does not matter.
        entries = self._commit(lambda planned: [replace(entry, planned_lsn=planned)], behind)
        yield from (each for each in entries if isinstance(each, SegmentEntry))

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


def _copy_groups(state: StoreState, target: CommitLog, topics: Iterable[Topic]) -> None:
    """Move groups without live members forward to their offsets in the source."""
    entries = [
        GroupOffsetsEntry(name, -1, topic.id, ahead)
        for name in list(state.groups)
        for topic in topics
        if (ahead := _ahead(state, target.refresh(), name, topic))
        if not has_live_member(target, name)
    ]
    if entries:
        target.commit([Unit(tuple(entries))])


def _ahead(
    state: StoreState, target: StoreState, group: str, topic: Topic
) -> tuple[tuple[int, int], ...]:
    """A group's offsets that are ahead in the source, limited to records that the target has."""
    copied, known = target.topic(topic.name), target.group_offsets(group).get(topic.id, {})
    wanted = state.group_offsets(group).get(topic.id, {})
    found = {n: copied.partition(n).readable_from(offset) for n, offset in wanted.items()}
    return tuple((n, offset) for n, offset in found.items() if offset > known.get(n, -1))
