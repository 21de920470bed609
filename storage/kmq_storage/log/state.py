"""What the commits add up to: topics, groups, producers and batches at one LSN.

The state is a pure function of the log's prefix: every process that applied the same
commits has the same state, so binding a commit needs no coordinator.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kmq_storage import limits, paths
from kmq_storage.errors import (
    CorruptionError,
    FormatVersionError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from kmq_storage.format.entries import (
    BatchIdEntry,
    Entry,
    GroupEntry,
    GroupOffsetsEntry,
    ProducerEntry,
    RecordsEntry,
    TopicEntry,
)
from kmq_storage.log.chunks import ChunkTable, Hole
from kmq_storage.model import Chunk, Damage, TopicInfo, TopicSettings


class Partition:
    """One partition: its bounds, and in a reader's state where its record batches are."""

    __slots__ = ("chunks", "doubt", "end", "size", "start")

    def __init__(self, *, indexed: bool) -> None:
        #: A damaged commit that may have had records after `end`.
        self.doubt: Damage | None = None
        self.start = 0
        self.end = 0
        self.size = 0
        self.chunks = ChunkTable() if indexed else None


class Topic:
    """One topic: its definition and partitions."""

    __slots__ = ("id", "name", "parts", "settings")

    def __init__(self, topic_id: bytes, name: str) -> None:
        self.id = topic_id
        self.name = name
        self.settings = TopicSettings()
        self.parts: list[Partition] = []

    @property
    def topic_id(self) -> uuid.UUID:
        """What tells this topic from an earlier one of the same name."""
        return uuid.UUID(bytes=self.id)

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self.parts)

    @property
    def held(self) -> int:
        """Records held over all partitions."""
        return sum(part.end - part.start for part in self.parts)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Start and end (next offset) of each partition."""
        return {number: (part.start, part.end) for number, part in enumerate(self.parts)}

    def partition(self, number: int) -> Partition:
        """The partition of this number."""
        if not 0 <= number < len(self.parts):
            raise NotFoundError(
                f"Partition[{self.name}-{number}] doesn't exist: topic {self.name} has "
                f"{len(self.parts)} partitions",
                topic=self.name,
                partition=number,
            )
        return self.parts[number]

    def chunks(self, number: int, start: int, end: int, limit: int | None = None) -> list[Chunk]:
        """The chunks of a partition with records in [start, end), for a reader's state.

        OffsetOutOfRangeError below the log's start, CorruptionError in a damaged range.
        """
        part = self.partition(number)
        assert part.chunks is not None, "only a reader's state knows where records are"
        if start < part.start or start > part.end:
            raise out_of_range(self.name, number, start, part)
        part.chunks.check(self.name, number, start, min(end, part.end))
        return part.chunks.between(start, min(end, part.end), limit)

    def enlarge(self, partitions: int, *, indexed: bool) -> None:
        """Have at least this many partitions."""
        while len(self.parts) < partitions:
            self.parts.append(Partition(indexed=indexed))

    def info(self) -> TopicInfo:
        """The topic as a value."""
        return TopicInfo(
            self.name,
            self.topic_id,
            self.partitions,
            self.settings,
            self.offsets(),
            self.held,
            sum(part.size for part in self.parts),
        )


def _settings_of(entry: TopicEntry) -> TopicSettings:
    try:
        return TopicSettings(**entry.settings)
    except TypeError as error:
        raise FormatVersionError(
            f"topic {entry.name} has settings that this version of kmq does not know ({error}); "
            "read the store with a newer kmq",
            topic=entry.name,
        ) from error


def out_of_range(topic: str, partition: int, offset: int, part: Partition) -> OffsetOutOfRangeError:
    """The error for an offset outside the log, with the range that is inside."""
    return OffsetOutOfRangeError(
        f"{topic}-{partition}: offset {offset} is outside the log, "
        f"which holds {part.start} to {part.end} (next)",
        topic=topic,
        partition=partition,
        offset=offset,
        start=part.start,
        end=part.end,
    )


@dataclass(slots=True)
class Group:
    """A consumer group: its generation and what it committed, by topic id and partition."""

    generation: int = 0
    member: str = ""
    client: str = ""
    assignment: Mapping[str, list[int]] = field(default_factory=dict)
    #: When the member joined, UTC microseconds.
    joined: int = 0
    offsets: dict[bytes, dict[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a producer wrote last: a retry of it is answered, not stored again."""

    epoch: int
    sequence: int
    lsn: int


class StoreState:
    """Everything the log says, up to `lsn`; `indexed` also knows where records are."""

    def __init__(self, *, indexed: bool) -> None:
        self.lsn = 0
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.producers: dict[str, ProducerState] = {}
        self.batches: dict[str, tuple[int, int]] = {}
        #: Commits that could not be read but were passed over, since later ones prove themselves.
        self.damage: list[Damage] = []
        #: Damage at the end of the log: acknowledged commits are missing and nothing follows.
        self.broken: Damage | None = None
        #: Grows whenever a topic is made, changed or deleted.
        self.definitions = 0
        self._indexed = indexed
        self._by_id: dict[bytes, Topic] = {}
        self._apply_kind: Mapping[type, Callable[[Any, int, int], None]] = {
            ProducerEntry: self._apply_producer,
            GroupOffsetsEntry: self._apply_offsets,
            BatchIdEntry: self._apply_batch,
            TopicEntry: self._apply_topic,
            GroupEntry: self._apply_group,
        }

    def find_topic(self, name: str) -> Topic | None:
        """The topic of this name, if there is one."""
        return self.topics.get(name)

    def topic(self, name: str) -> Topic:
        """The topic of this name; NotFoundError when there is none."""
        found = self.topics.get(name) if isinstance(name, str) else None
        if found is None and self.broken is not None:
            raise CorruptionError(
                f"Topic[{name}] is not known, but the log can't be read after commit {self.lsn} in "
                f"{self.broken.file} ({self.broken.reason}), though more was acknowledged",
                file=self.broken.file,
                topic=name,
            )
        if found is None and self.damage:
            raise CorruptionError(
                f"Topic[{name}] is not known, but commits in {self.damage[-1].file} are damaged "
                f"({self.damage[-1].reason}) that may have made it",
                file=self.damage[-1].file,
                topic=name,
            )
        if found is None:
            raise NotFoundError(f"Topic[{name}] doesn't exist.", topic=name)
        return found

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id, unless it was deleted."""
        return self._by_id.get(topic_id)

    def group_offsets(self, group: str) -> dict[bytes, dict[int, int]]:
        """What a group committed, by topic id and partition; empty when it is unknown."""
        found = self.groups.get(group)
        return found.offsets if found else {}

    def batch_version(self, application: str) -> int | None:
        """The newest batch of an application that is stored."""
        found = self.batches.get(application)
        return found[0] if found else None

    def check_end(self, topic: str, partition: int) -> None:
        """CorruptionError when the log may have gone on after the last record that can be read."""
        part = self.topic(topic).partition(partition)
        damage = self.broken or part.doubt
        if damage is not None:
            raise CorruptionError(
                f"{topic}-{partition}: what follows offset {part.end} can't be read, commits "
                f"{damage.first_lsn} to {damage.last_lsn} in {damage.file} are damaged "
                f"({damage.reason}); those before are readable; put the file back from a copy",
                file=damage.file,
                topic=topic,
                partition=partition,
                start=part.end,
            )

    def note_damage(self, damage: Damage) -> None:
        """Commits were passed over: nobody knows which partitions they had records of."""
        self.damage.append(damage)
        for topic in self.topics.values():
            for part in topic.parts:
                part.doubt = part.doubt or damage

    def apply(
        self, lsn: int, time: int, entries: list[Entry], *, file: str = "", position: int = 0
    ) -> None:
        """Take over one commit; file and position say where its frame stands."""
        for entry in entries:
            if isinstance(entry, RecordsEntry):
                self._apply_records(entry, file, position)
            else:
                self._apply_kind[type(entry)](entry, lsn, time)
        self.lsn = lsn

    def _apply_records(self, entry: RecordsEntry, file: str, position: int) -> None:
        topic = self._by_id.get(entry.topic_id)
        if topic is None and self.damage:
            return  # the commit that made the topic is the damaged one
        assert topic is not None, "records of a topic that no commit made"
        if self.damage:  # the commit that enlarged the topic may be the damaged one
            topic.enlarge(entry.partition + 1, indexed=self._indexed)
        part = topic.parts[entry.partition]
        if part.chunks is not None:
            if entry.base_offset > part.end and self.damage:
                damage = part.doubt or self.damage[-1]
                part.chunks.holes.append(Hole(part.end, entry.base_offset, damage))
            if entry.staged:
                part.chunks.append(entry, paths.staged_file(entry.staged), entry.position)
            else:
                part.chunks.append(entry, file, position + entry.position)
        part.doubt = None
        part.end = entry.base_offset + entry.rows
        part.size += entry.size

    def _apply_producer(self, entry: ProducerEntry, lsn: int, time: int) -> None:
        self.producers.pop(entry.producer, None)
        self.producers[entry.producer] = ProducerState(entry.epoch, entry.sequence, lsn)
        if len(self.producers) > limits.PRODUCERS_REMEMBERED:
            del self.producers[next(iter(self.producers))]

    def _apply_offsets(self, entry: GroupOffsetsEntry, lsn: int, time: int) -> None:
        group = self.groups.setdefault(entry.group, Group())
        group.offsets.setdefault(entry.topic_id, {}).update(entry.offsets)

    def _apply_batch(self, entry: BatchIdEntry, lsn: int, time: int) -> None:
        self.batches[entry.application] = (entry.version, lsn)

    def _apply_topic(self, entry: TopicEntry, lsn: int, time: int) -> None:
        self.definitions += 1
        if entry.partitions == 0:
            self._forget_topic(entry)
            return
        topic = self._by_id.get(entry.topic_id)
        if topic is None:
            topic = self._by_id[entry.topic_id] = Topic(entry.topic_id, entry.name)
            self.topics[entry.name] = topic
        topic.settings = _settings_of(entry)
        topic.enlarge(entry.partitions, indexed=self._indexed)

    def _forget_topic(self, entry: TopicEntry) -> None:
        if self._by_id.pop(entry.topic_id, None) is not None:  # its making may be damaged
            del self.topics[entry.name]
        for group in self.groups.values():
            group.offsets.pop(entry.topic_id, None)

    def _apply_group(self, entry: GroupEntry, lsn: int, time: int) -> None:
        if entry.generation == 0:
            self.groups.pop(entry.group, None)
            return
        group = self.groups.setdefault(entry.group, Group())
        if entry.generation != group.generation:
            group.joined = time
        group.generation, group.member = entry.generation, entry.member
        group.client, group.assignment = entry.client, entry.assignment
