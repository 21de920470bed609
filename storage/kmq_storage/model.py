"""The values that the layers pass to each other and to users."""

from __future__ import annotations

import uuid
from base64 import b64decode
from collections.abc import Iterator, Mapping
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


#: A member in the definitions of keyed topics, by which versions that don't know ends of queues
#: refuse the store. It has no other meaning.
ENDS = "ends"


class ByName(Mapping[str, Any]):
    """A dataclass whose fields are also items: `stats["ready"]`, `dict(stats)`."""

    __slots__ = ()
    __match_args__: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        if name not in iter(self):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__match_args__)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class TopicSettings(ByName):
    """How a topic keeps its records; its items are settings of `create_topic`."""

    #: The least time in seconds, from its commit on, that a record is kept; None keeps all.
    retention: float | None = None
    #: The least bytes that a partition keeps; None keeps all.
    retention_bytes: int | None = None
    #: `delete` drops old records, `compact` keeps the newest of each key.
    cleanup: str = "delete"
    #: The most records in all partitions; None has no limit.
    capacity: int | None = None
    #: The most bytes of key, value, headers and properties of one record.
    max_record_bytes: int = limits.RECORD_BYTES_DEFAULT
    #: Seconds in which a second record with the same `uniq` is not stored.
    uniq_window: float = 120.0
    #: How segments are compressed: `lz4`, `zstd`, or None. Only uncompressed ones can be mapped.
    compression: str | None = None
    #: Whether its keys are queues (`store.keyed_queues`).
    keyed: bool = False
    #: Whether old messages of its queues may be trimmed, so that queues need not begin at 0.
    trims: bool = False
    #: The versions of a typed topic's schema, as Arrow IPC schema messages in base64.
    schemas: tuple[str, ...] = field(default=(), repr=False)

    def __iter__(self) -> Iterator[str]:
        own = {"keyed", "trims", "schemas"}
        return iter([*(name for name in self.__match_args__ if name not in own), "schema"])

    @property
    def schema(self) -> pa.Schema | None:
        """The newest schema of a typed topic; None for an untyped one."""
        return decode_schema(self.schemas[-1]) if self.schemas else None

    def to_json(self) -> dict[str, Any]:
        """The settings as a JSON object; members for schemas and queues only where they apply."""
        members = asdict(self)
        schemas, keyed = list(members.pop("schemas")), members.pop("keyed")
        trims = members.pop("trims")
        members |= {"keyed": True, ENDS: True} if keyed else {}
        members |= {"trims": True} if trims else {}
        return members | ({"schemas": schemas} if schemas else {})


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The current facts of a topic."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    settings: TopicSettings
    #: Start and end (next offset) of each partition.
    offsets: Mapping[int, tuple[int, int]]
    #: The number of records. After a trim into a compacted segment, it is an estimate until the
    #: segment is rewritten.
    rows: int
    #: Bytes of keys, values, headers and properties.
    bytes: int

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of a typed topic; None for an untyped one."""
        return self.settings.schema


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A live member of a consumer group."""

    name: str
    client: str
    #: The partitions that the member owns, by topic.
    assignment: Mapping[str, list[int]]
    joined: datetime
    #: The generation of the group in which the member joined; its commits name this generation.
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """The current facts of a consumer group; the mappings are by topic, then by partition."""

    name: str
    generation: int
    members: list[MemberInfo]
    committed: Mapping[str, Mapping[int, int]]
    #: This and the lags: of all topics with a committed offset, or that members read.
    end: Mapping[str, Mapping[int, int]]
    lag: Mapping[str, Mapping[int, int]]
    lag_bytes: Mapping[str, Mapping[int, int]]
    lag_seconds: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class QueueSettings(ByName):
    """How a queue delivers its records; times are in seconds."""

    #: How long a receiver's lock on a record holds, unless the receiver answers or extends it.
    lock_timeout: float = 30.0
    #: After this many deliveries without success, a record becomes a dead letter; None: never.
    max_deliveries: int | None = 16
    #: The delays after a `nack`, by the number of deliveries; the last one holds for all further.
    backoff: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0)
    #: `none`, `key` or `strict`.
    order: str = "none"
    #: The queue for dead letters; None: `<name>.dlq`, which is created on first use.
    dead_letter: str | None = None
    #: The most unfinished records, with which no more can be sent to the queue; None: no limit.
    capacity: int | None = None
    #: Seconds in which a second record with the same `uniq` is not stored.
    uniq_window: float = 120.0

    def pause_after(self, deliveries: int) -> float:
        """How long a record waits after a `nack` of this delivery, counted from 1."""
        return self.backoff[min(deliveries, len(self.backoff)) - 1] if self.backoff else 0.0

    def to_json(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        return asdict(self) | {"backoff": list(self.backoff)}


@dataclass(frozen=True, slots=True)
class QueueStats(ByName):
    """The numbers of a queue's records by their state."""

    #: Now: deliverable, locked by a receiver, and to be delivered later.
    ready: int
    locked: int
    delayed: int
    #: Since the queue was created: deliveries, acknowledged, dead letters, and expired.
    delivered: int
    acked: int
    dead: int
    expired: int


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """The current facts of a queue."""

    name: str
    #: The names of the topics that the queue reads.
    topics: list[str]
    settings: QueueSettings
    stats: QueueStats


@dataclass(frozen=True, slots=True)
class Location:
    """Where bytes are: the file in the store, the position of the first byte, and the length."""

    file: str
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a range of offsets of one partition is stored, with all that verifies its bytes."""

    base_offset: int
    #: The offset after the last one that is covered. Compaction leaves fewer rows than offsets.
    end_offset: int
    rows: int
    #: The bytes of the record batch, or of a segment's footer.
    location: Location
    #: The CRC of these bytes.
    checksum: int
    #: The stored columns, as flags (`format.records`).
    columns: int
    #: UTC microseconds.
    min_timestamp: int
    max_timestamp: int
    #: Bytes of keys, values, headers and properties.
    size: int

    @property
    def dense(self) -> bool:
        """Whether every offset has its row."""
        return self.rows == self.end_offset - self.base_offset


@dataclass(frozen=True, slots=True)
class Chunk(Place):
    """One stored record batch of a partition."""

    #: Checksums of single columns of a sealed batch (`format.packing`).
    parts: bytes = b""


@dataclass(frozen=True, slots=True)
class RunPiece(Chunk):
    """Some offsets of a run, whose records are anywhere in it; the location is the whole run's."""

    #: The batches of the run. Their offsets are numbers of rows within the run.
    batches: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment(Place):
    """One sealed file of a partition; its footer lists its record batches."""

    @property
    def length(self) -> int:
        """Bytes of the whole file."""
        return self.location.position + self.location.length


@dataclass(frozen=True, slots=True)
class LogDamage:
    """A part of the log that can't be read, and the commits that it held."""

    file: str
    reason: str
    first_lsn: int
    last_lsn: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic change of the store."""

    lsn: int
    #: When it was written, by the writer's clock, but never before its predecessor.
    time: datetime
    entries: tuple[Any, ...] = field(repr=False)
    #: The log file of its frame (as first LSN) and its position there, to read inline batches.
    place: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)
