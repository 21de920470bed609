"""What segments and later commits tell of the topics of a store that lost its manifest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kmq_storage.format.entries import Entry, RecordsEntry, TopicEntry
from kmq_storage.format.file_ids import begun_at
from kmq_storage.format.layout import Layout, layout_of
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.manifest import Key
from kmq_storage.integrity.remains.partition_ends import PartitionEnds
from kmq_storage.integrity.remains.segments import FoundRows, FoundSegment
from kmq_storage.names import queue_of_log

#: Above the LSN of any commit, for partitions that commits in the log name.
_IN_LOG = 1 << 64


@dataclass(slots=True)
class KnownTopics:
    """The facts that were found about topics without a manifest, by topic id."""

    names: dict[bytes, str] = field(default_factory=dict)
    #: The schema versions of typed topics.
    schemas: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    #: The number of partitions.
    partitions: dict[bytes, int] = field(default_factory=dict)
    #: The highest LSN at which a file of the topic was begun.
    last: dict[bytes, int] = field(default_factory=dict)
    found: FoundRows = field(default_factory=FoundRows)
    ends: PartitionEnds = field(default_factory=PartitionEnds)
    #: The number of partitions in an older checkpoint.
    older: dict[bytes, int] = field(default_factory=dict)
    #: The partitions with new gaps.
    cut: set[Key] = field(default_factory=set)

    def note_segment(self, segment: FoundSegment) -> None:
        """Note the topic and partition of a segment."""
        topic_id = segment.topic_id
        self.names[topic_id] = segment.topic
        self._note_partition(topic_id, segment.partition, begun_at(segment.row.file))
        self._note_schemas(topic_id, segment.schemas)

    def note(self, entry: Entry) -> None:
        """Note what an entry of a commit that is left tells."""
        self.ends.note(entry)
        if isinstance(entry, RecordsEntry | SegmentEntry | TrimEntry | GapEntry):
            self._note_partition(entry.topic_id, entry.partition)
        elif isinstance(entry, TopicEntry):
            self._note_topic(entry)

    def _note_topic(self, entry: TopicEntry) -> None:
        """Note a definition of a topic.

        It may create or change the topic, so its partitions may be older than the log. A queue's
        own log is only ever created, so it has none before this definition.
        """
        self.names.setdefault(entry.topic_id, entry.name)
        self._note_schemas(entry.topic_id, entry.settings.get("schemas", ()))
        if entry.partitions and queue_of_log(entry.name) is None:
            self._note_partition(entry.topic_id, entry.partitions - 1)

    def _note_partition(self, topic_id: bytes, number: int, lsn: int = _IN_LOG) -> None:
        """Note that there is a partition with this number, with a file begun at this LSN."""
        self.partitions[topic_id] = max(self.partitions.get(topic_id, 0), number + 1)
        self.last[topic_id] = max(self.last.get(topic_id, 0), lsn)

    def _note_schemas(self, topic_id: bytes, schemas: Iterable[str]) -> None:
        """Note schema versions of a topic; versions are only added, so the longest list counts."""
        self.schemas[topic_id] = max(self.schemas.get(topic_id, ()), tuple(schemas), key=len)

    def note_rows(self, segment: FoundSegment) -> bool:
        """Note the records of a segment, once all else is noted; False when no schema fits it."""
        row = segment.row_of(self.layout(segment.topic_id))
        if row is not None:
            self.found.note_segment(segment, row)
        return row is not None

    def layout(self, topic_id: bytes) -> Layout:
        """The layout for reading a topic's records."""
        return layout_of(self.schemas.get(topic_id, ()))

    def newest_first(self) -> list[bytes]:
        """The topics, so that of several with one name the latest comes first and keeps it."""
        return sorted(self.partitions, key=self.last.__getitem__, reverse=True)

    def is_older(self, key: Key) -> bool:
        """Whether an older checkpoint has this partition."""
        return key[1] < self.older.get(key[0], 0)
