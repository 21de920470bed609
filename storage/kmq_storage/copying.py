"""Copying topics from one store to another, from disk to bucket and back.

A copied topic keeps its id, offsets, timestamps and content. It goes over segment by segment, each
in one commit with the offset it ends at, so a copy that was interrupted goes on where it stopped.
Every record batch is proven when it is read here, and once more when it was written there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from kmq_storage import limits
from kmq_storage.cutting import cut
from kmq_storage.errors import AlreadyExistsError, InvalidRequestError
from kmq_storage.format.entries import BatchIdEntry, GroupOffsetsEntry, TopicEntry
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.format.layout_entries import SegmentEntry
from kmq_storage.format.manifest import SEGMENT, Row, weight_of
from kmq_storage.log.binding import DuplicateCommitError, Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.state import StoreState, row_of_segment
from kmq_storage.log.topic_state import Partition, Topic
from kmq_storage.maintenance.segments import Replacement, write_segment


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What was copied by this call; what an earlier one copied is not counted."""

    topics: int
    segments: int
    rows: int
    #: Bytes of the segments written.
    bytes: int


def copy_topics(
    source: CommitLog, target: CommitLog, names: Iterable[str] | None = None
) -> CopyReport:
    """Copy topics, all of them or some, and the offsets of their groups.

    AlreadyExistsError when the target has another topic of that name, InvalidRequestError when
    its copy was written to since. A reader of the target sees each partition grow in order.
    """
    state = source.refresh()
    topics = [state.topic(name) for name in (state.topics if names is None else names)]
    segments: list[SegmentEntry] = []
    for topic in topics:
        _make(target, topic)
        for number in range(topic.partitions):
            segments += _copy_partition(source, target, topic, number)
    _copy_groups(state, target, {topic.id for topic in topics})
    rows, size = sum(each.rows for each in segments), sum(each.length for each in segments)
    return CopyReport(len(topics), len(segments), rows, size)


def _make(target: CommitLog, topic: Topic) -> None:
    found = target.refresh().find_topic(topic.name)
    if found is not None and found.id != topic.id:
        raise AlreadyExistsError(
            f"Topic[{topic.name}] exists already in {target.disk.url}, and is no copy of this one.",
            topic=topic.name,
        )
    definition = TopicEntry(topic.id, topic.name, topic.partitions, topic.settings.to_json())
    if found is None or (found.partitions, found.settings) != (topic.partitions, topic.settings):
        target.commit([Unit((definition,))])


def _copy_partition(
    source: CommitLog, target: CommitLog, topic: Topic, number: int
) -> Iterator[SegmentEntry]:
    part, mark = topic.partition(number), f"copy/{topic.id.hex()}/{number}"
    reader, proof = ChunkReader(source.disk), ChunkReader(target.disk)
    copied = target.refresh().topic(topic.name).partition(number)
    position = _position(target.state, copied, topic, number, mark)
    for run in _runs(topic.index(number).rows(max(position, part.start), part.end)):
        piece = Replacement(topic, number, tuple(run), target.refresh().lsn, first=position)
        file_id = new_file_id(target.environment.new_uuid(), piece.lsn)
        entry = write_segment(target.disk, file_id, piece, piece.slices(reader))
        entry = replace(entry, old_rows=0, old_size=0)
        _prove(proof, topic, number, entry)
        try:
            target.commit([Unit((entry, BatchIdEntry(mark, entry.end_offset)))])
        except DuplicateCommitError:
            continue  # another copy is faster
        position = entry.end_offset
        yield entry


def _position(state: StoreState, copied: Partition, topic: Topic, number: int, mark: str) -> int:
    """Where to go on: at the end of what was copied, if nobody else wrote there."""
    if copied.end != (state.batch_version(mark) or 0):
        raise InvalidRequestError(
            f"{topic.name}-{number} in the target was written to since it was copied; copy into "
            "another store, or delete the topic there first",
            topic=topic.name,
            partition=number,
        )
    return copied.end


def _runs(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Segments one by one; what is not sealed yet in runs that make one segment."""
    for is_segment, some in groupby(rows, lambda row: row.kind == SEGMENT):
        alone = -1  # however small they are
        yield from cut(some, weight_of, alone if is_segment else limits.SEGMENT_BYTES)


def _prove(reader: ChunkReader, topic: Topic, number: int, entry: SegmentEntry) -> None:
    """Read back what was written; CorruptionError when it is something else."""
    layout, name = topic.layout(), topic.name
    for chunk in reader.chunks(row_of_segment(entry).place((topic.id, number))):
        span = (chunk.base_offset, chunk.end_offset)
        reader.read(chunk, *span, topic=name, partition=number, layout=layout)


def _copy_groups(state: StoreState, target: CommitLog, topic_ids: set[bytes]) -> None:
    entries = [
        GroupOffsetsEntry(name, -1, topic_id, tuple(by_partition.items()))
        for name, group in state.groups.items()
        for topic_id, by_partition in group.offsets.items()
        if topic_id in topic_ids
    ]
    if entries:
        target.commit([Unit(tuple(entries))])
