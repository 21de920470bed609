"""The state of a topic and its partitions."""

from __future__ import annotations

import uuid

from kmq_storage.errors import NotFoundError, OffsetOutOfRangeError
from kmq_storage.format.layout import Layout, layout_of
from kmq_storage.format.records import TOMBSTONES
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.index.offset_index import Gap, OffsetIndex
from kmq_storage.model import LogDamage, Place, TopicInfo, TopicSettings


class Partition:
    """One partition: its bounds and counts, and in a reader's state where its records are."""

    __slots__ = (
        "doubt",
        "end",
        "index",
        "is_begun",
        "layout_lsn",
        "rows",
        "size",
        "start",
        "tombstones",
    )

    def __init__(self, index: OffsetIndex | None) -> None:
        #: A damaged commit that may have had records after `end`.
        self.doubt: LogDamage | None = None
        #: The first offset of the manifest's rows; readers begin at `first`.
        self.start = 0
        #: The next offset.
        self.end = 0
        #: Whether a trim of keyed queues set `start`: the row there has no record, but tells at
        #: which message each queue goes on.
        self.is_begun = False
        #: Number of records and their bytes; compaction leaves fewer records than offsets.
        self.rows = 0
        self.size = 0
        #: The last commit that sealed, rewrote, trimmed or cut out records.
        self.layout_lsn = 0
        #: The second (UTC) by which the tombstones that wait to be dropped were committed; or 0.
        self.tombstones = 0
        self.index = index

    @property
    def first(self) -> int:
        """The first offset that a reader may begin at; records below it are gone."""
        return min(self.start + self.is_begun, self.end)

    def readable_from(self, position: int) -> int:
        """The first offset at or after a position that may still be read."""
        return min(max(position, self.first), self.end)

    def drop(self, rows: int, size: int) -> None:
        """Count records and bytes as gone; the commit that counted some of them may be lost."""
        self.rows, self.size = max(self.rows - rows, 0), max(self.size - size, 0)

    def found_again(self, start: int, end: int) -> None:
        """Add records at offsets that a rebuilt manifest counted as lost or before the start."""
        assert self.index is not None, "an offset is given out once"
        if start < self.start:
            self.index.gaps.append(Gap(start, self.end, "the manifest was lost"))
            self.start = start
        self.index.fill(start, end)

    def lag(self, position: int) -> int:
        """How many offsets are still to be read: what was trimmed away is not."""
        return self.end - self.readable_from(position)


class Topic:
    """One topic: its definition and partitions."""

    __slots__ = ("_manifest", "_topic_id", "columns", "id", "name", "parts", "settings", "turns")

    def __init__(self, topic_id: bytes, name: str, manifest: Manifest | None) -> None:
        self.id = topic_id
        self.name = name
        self.settings = TopicSettings()
        #: The union of `Chunk.columns` over all its record batches.
        self.columns = 0
        self.parts: list[Partition] = []
        #: For each lane, the last commit that changed something in it.
        self.turns: dict[int, int] = {}
        self._manifest = manifest
        self._topic_id: uuid.UUID | None = None

    @property
    def topic_id(self) -> uuid.UUID:
        """The id, which tells this topic from an earlier one of the same name."""
        if self._topic_id is None:  # a stream asks thousands of topics in each trigger
            self._topic_id = uuid.UUID(bytes=self.id)
        return self._topic_id

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.parts)

    @property
    def has_tombstones(self) -> bool:
        """Whether a typed topic ever had a record without a value."""
        return bool(self.columns & TOMBSTONES)

    def layout(self, only: frozenset[str] | None = None) -> Layout:
        """How to read the stored batches with the current schema; `only` these columns."""
        return layout_of(self.settings.schemas, only, tombstones=self.has_tombstones)

    @property
    def held(self) -> int:
        """The number of records in all partitions."""
        return sum(part.rows for part in self.parts)

    def offsets(self) -> dict[int, tuple[int, int]]:
        """The first offset and the end (next offset) of each partition."""
        return {number: (part.first, part.end) for number, part in enumerate(self.parts)}

    def partition(self, number: int) -> Partition:
        """The partition with this number; NotFoundError when there is none."""
        if not 0 <= number < len(self.parts):
            raise NotFoundError(
                f"Partition[{self.name}-{number}] doesn't exist: topic {self.name} has "
                f"{len(self.parts)} partitions",
                topic=self.name,
                partition=number,
            )
        return self.parts[number]

    def index(self, number: int) -> OffsetIndex:
        """The offset index of a partition; only a reader's state has one."""
        index = self.partition(number).index
        assert index is not None, "only a reader's state knows where records are"
        return index

    def places(self, number: int, start: int, end: int, limit: int | None = None) -> list[Place]:
        """The places of the records of a partition with offsets in [start, end).

        OffsetOutOfRangeError below the partition's start, CorruptionError in a damaged range,
        DataLossError in a range that a repair gave up.
        """
        check_inside(self, number, start, end)
        return self.index(number).between(start, min(end, self.partition(number).end), limit)

    def enlarge(self, partitions: int) -> None:
        """Add partitions until there are this many."""
        for number in range(len(self.parts), partitions):
            manifest = self._manifest
            index = OffsetIndex((self.id, number), manifest) if manifest is not None else None
            self.parts.append(Partition(index))

    def info(self) -> TopicInfo:
        """The topic as a value."""
        return TopicInfo(
            name=self.name,
            topic_id=self.topic_id,
            partitions=self.partitions,
            settings=self.settings,
            offsets=self.offsets(),
            rows=self.held,
            bytes=sum(part.size for part in self.parts),
        )


def recovered_name(topic_id: bytes) -> str:
    """The name for a topic whose own name is lost or taken by now."""
    return f"recovered-{topic_id.hex()[:8]}"


def check_inside(topic: Topic, number: int, start: int, end: int) -> None:
    """Check that [start, end) can be read, as far as the partition goes.

    OffsetOutOfRangeError, CorruptionError or DataLossError, as for `Topic.places`.
    """
    part = topic.partition(number)
    if start < part.first or start > part.end:
        raise out_of_range(topic.name, number, start, part)
    topic.index(number).check(topic.name, start, min(end, part.end))


def out_of_range(topic: str, partition: int, offset: int, part: Partition) -> OffsetOutOfRangeError:
    """The error for an offset outside the partition; it names the valid range."""
    return OffsetOutOfRangeError(
        f"{topic}-{partition}: offset {offset} is outside the log, "
        f"which holds {part.first} to {part.end} (next)",
        topic=topic,
        partition=partition,
        offset=offset,
        start=part.first,
        end=part.end,
    )
