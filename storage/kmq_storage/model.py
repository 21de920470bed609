"""The values that the layers hand to each other and to the user."""

from __future__ import annotations

import uuid
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from kmq_storage import limits

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_datetime(microseconds: int) -> datetime:
    """The instant of UTC microseconds."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(when: datetime) -> int:
    """UTC microseconds of an aware datetime, exactly."""
    return (when - _EPOCH) // _MICROSECOND


def decode_schema(encoded: str) -> pa.Schema:
    """The schema of an Arrow IPC schema message in base64."""
    return pa.ipc.read_schema(pa.py_buffer(b64decode(encoded)))


#: What definitions of keyed topics say besides, so that versions which don't know that a queue can
#: end refuse the store. It has no other meaning.
ENDS = "ends"


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How a topic keeps its records."""

    #: Seconds that a record is kept at least, counted from its commit; None keeps for ever.
    retention: float | None = None
    #: Bytes that a partition keeps at least; None keeps everything.
    retention_bytes: int | None = None
    #: `delete` drops old records, `compact` keeps the newest of each key.
    cleanup: str = "delete"
    #: Records held over all partitions; None has no limit.
    capacity: int | None = None
    #: Bytes of key, value, headers and properties of one record.
    max_record_bytes: int = limits.RECORD_BYTES_DEFAULT
    #: Seconds in which a second record with the same `uniq` is not stored.
    uniq_window: float = 120.0
    #: How segments are compressed: `lz4`, `zstd`, or None, which can be mapped.
    compression: str | None = None
    #: Whether its keys are queues (`store.keyed_queues`).
    keyed: bool = False
    #: Whether old messages of its queues may be gone, so that these need not begin at 0.
    trims: bool = False
    #: The versions of a typed topic's schema: Arrow IPC schema messages in base64.
    schemas: tuple[str, ...] = field(default=(), repr=False)

    @property
    def schema(self) -> pa.Schema | None:
        """The newest schema of a typed topic; None for an untyped one."""
        return decode_schema(self.schemas[-1]) if self.schemas else None

    def to_json(self) -> dict[str, Any]:
        """The settings as a JSON object; only those that have them name schemas or queues."""
        members = asdict(self)
        schemas, keyed = list(members.pop("schemas")), members.pop("keyed")
        trims = members.pop("trims")
        members |= {"keyed": True, ENDS: True} if keyed else {}
        members |= {"trims": True} if trims else {}
        return members | ({"schemas": schemas} if schemas else {})


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as it is now."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    settings: TopicSettings
    #: Start and end (next offset) of each partition.
    offsets: Mapping[int, tuple[int, int]]
    #: Records; after a trim into the middle of compacted ones roughly, until these are rewritten.
    rows: int
    #: Bytes of keys, values, headers and properties.
    bytes: int

    @property
    def schema(self) -> pa.Schema | None:
        """The own columns of a typed topic; None for an untyped one."""
        return self.settings.schema


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A live member of a consumer group."""

    name: str
    client: str
    #: The partitions that it owns, by topic.
    assignment: Mapping[str, list[int]]
    joined: datetime
    #: The generation of the group in which it joined; its commits name it.
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group as it is now; the mappings go by topic, then partition."""

    name: str
    generation: int
    members: list[MemberInfo]
    committed: Mapping[str, Mapping[int, int]]
    end: Mapping[str, Mapping[int, int]]
    lag: Mapping[str, Mapping[int, int]]
    lag_bytes: Mapping[str, Mapping[int, int]]
    lag_seconds: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How a queue hands out its records; times in seconds."""

    #: Whoever got a record holds it for so long, unless it answers or extends that.
    lock_timeout: float = 30.0
    #: A record that was handed out so often without success goes to the dead letters; None: never.
    max_deliveries: int | None = 16
    #: What `nack` waits for by the number of deliveries; the last one counts for all further.
    backoff: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0)
    #: `none`, `key` or `strict`.
    order: str = "none"
    #: The queue of dead letters; None: `<name>.dlq`, made on first use.
    dead_letter: str | None = None
    #: Unfinished records it holds when nothing more may be sent to it; None has no limit.
    capacity: int | None = None
    #: Seconds in which a second record with the same `uniq` is not stored.
    uniq_window: float = 120.0

    def to_json(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        return asdict(self) | {"backoff": list(self.backoff)}


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How many records of a queue are where."""

    #: Can be had now, are held by somebody, come later: now.
    ready: int
    locked: int
    delayed: int
    #: Handed out, acknowledged, became dead letters, were too old: since the queue was made.
    delivered: int
    acked: int
    dead: int
    expired: int


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as it is now."""

    name: str
    #: Those that it reads, by name.
    topics: list[str]
    settings: QueueSettings
    stats: QueueStats


@dataclass(frozen=True, slots=True)
class Location:
    """Where bytes stand: a file below the store, the first byte, and how many."""

    file: str
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a range of offsets of one partition stands: all that a reader needs to prove it."""

    base_offset: int
    #: The offset after the last one that is covered; compaction leaves fewer rows than offsets.
    end_offset: int
    rows: int
    #: The record batch, or the footer's part of a segment.
    location: Location
    #: The CRC of the bytes there.
    checksum: int
    #: Which columns are there (`format.records`).
    columns: int
    #: UTC microseconds.
    min_timestamp: int
    max_timestamp: int
    #: Bytes of keys, values, headers and properties.
    size: int


@dataclass(frozen=True, slots=True)
class Chunk(Place):
    """One stored record batch of a partition."""

    #: What proves single columns of a sealed one (`format.packing`).
    parts: bytes = b""

    @property
    def dense(self) -> bool:
        """Whether every offset has its row."""
        return self.rows == self.end_offset - self.base_offset


@dataclass(frozen=True, slots=True)
class RunPiece(Chunk):
    """Some offsets of a run, whose records stand all over it; its location is that of all."""

    #: Those of the run; they count its rows instead of offsets.
    batches: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment(Place):
    """One sealed file of a partition; its footer knows the record batches in it."""

    @property
    def length(self) -> int:
        """Bytes of the whole file."""
        return self.location.position + self.location.length


@dataclass(frozen=True, slots=True)
class LogDamage:
    """A place in the log that can't be read, and what it held as far as is known."""

    file: str
    reason: str
    first_lsn: int
    last_lsn: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic change of the store."""

    lsn: int
    #: When it was written, by the writer's clock, never before its predecessor.
    time: datetime
    entries: tuple[Any, ...] = field(repr=False)
    #: The file of the log that it stands in, and where; what its entries name may be read there.
    place: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)
