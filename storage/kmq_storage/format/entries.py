"""The entries of a commit's directory, which tell what the commit changes.

An entry consists of a kind, a length and a payload, padded to 8 bytes. Payloads on the hot path
(records, producers, group offsets, batch ids) are binary, and rare ones (topics and groups) are
JSON. An unknown kind is refused, never skipped: skipping it would show a commit in part.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from kmq_storage.errors import FormatVersionError
from kmq_storage.format.group_entries import GroupPlanEntry, GroupReleaseEntry
from kmq_storage.format.json_bytes import compact_json
from kmq_storage.format.layout_entries import CondemnEntry, LayoutEntry, SegmentEntry
from kmq_storage.format.queue_entries import QueueChange
from kmq_storage.format.turn_entry import TurnEntry
from kmq_storage.format.uniq_entry import UniqEntry

_ENTRY = struct.Struct("<HHI")
_RECORDS, _STAGED_RECORDS = 1, 10
_SHORT = 2**32
_LAYOUT = struct.Struct("<16sIIQQIIHHIqqQ")
#: The same without the field that tells that a batch is staged.
_READ_LAYOUT = struct.Struct("<16sIIQQIIHxxxxxxqqQ")
#: A shorter form for staged batches (96 bytes), as a Spark write names thousands of files.
_STAGED_LAYOUT = struct.Struct("<16s16sIIQIIIIqqHxxxxxx")


class RecordsEntry(NamedTuple):
    """One record batch of one partition; positions and sizes in bytes, times in UTC us.

    This is a tuple, which is made in a third of the time: opening a store reads all of its log.
    """

    topic_id: bytes
    partition: int
    rows: int
    #: The offset of the first row; set when the commit is bound.
    base_offset: int
    #: Where the Arrow message begins: from the frame's start, or in the staged file.
    position: int
    length: int
    checksum: int
    #: The optional columns, as flags (`format.records`).
    columns: int
    min_timestamp: int
    max_timestamp: int
    #: Bytes of keys, values, headers and properties.
    size: int
    #: The id of the staged file, or empty when the batch is inside the frame.
    staged: bytes = b""

    @property
    def kind(self) -> int:
        """10 for a staged batch, unless its file is huge; else 1."""
        short = self.staged and self.position < _SHORT and self.size < _SHORT
        return _STAGED_RECORDS if short else _RECORDS

    # Every commit needs these copies, and `dataclasses.replace` would take several times as long.

    def at(self, position: int) -> RecordsEntry:
        """The same batch at this position."""
        return self._moved(self.base_offset, position)

    def bound(self, base_offset: int) -> RecordsEntry:
        """The same batch with the offset of its first row."""
        return self._moved(base_offset, self.position)

    def _moved(self, base_offset: int, position: int) -> RecordsEntry:
        return RecordsEntry(
            self.topic_id,
            self.partition,
            self.rows,
            base_offset,
            position,
            self.length,
            self.checksum,
            self.columns,
            self.min_timestamp,
            self.max_timestamp,
            self.size,
            self.staged,
        )

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        if self.kind == _STAGED_RECORDS:
            return self._staged_payload()
        is_staged = 1 if self.staged else 0
        return _LAYOUT.pack(*self[:8], is_staged, 0, *self[8:11]) + self.staged

    def _staged_payload(self) -> bytes:
        return _STAGED_LAYOUT.pack(
            self.topic_id,
            self.staged,
            self.partition,
            self.rows,
            self.base_offset,
            self.position,
            self.length,
            self.checksum,
            self.size,
            self.min_timestamp,
            self.max_timestamp,
            self.columns,
        )

    @classmethod
    def parse_staged(cls, payload: bytes) -> RecordsEntry:
        """The entry from the short binary form of a staged batch."""
        topic_id, staged, *facts = _STAGED_LAYOUT.unpack(payload)
        partition, rows, base, position, length, check, size, low, high, columns = facts
        place = (partition, rows, base, position, length, check)
        return cls(topic_id, *place, columns, low, high, size, staged)

    @classmethod
    def parse(cls, payload: bytes) -> RecordsEntry:
        """The entry from the long binary form; in old logs, staged batches have it, too."""
        return cls._make((*_READ_LAYOUT.unpack_from(payload), payload[_LAYOUT.size :]))


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """The producer of a commit, so that a retry after an unknown outcome is stored once."""

    producer: str
    epoch: int
    #: The number of this commit in the producer's epoch, from 0; -1 only opens the epoch.
    sequence: int

    kind = 2
    _layout = struct.Struct("<qq")

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        return self._layout.pack(self.epoch, self.sequence) + self.producer.encode()

    @classmethod
    def parse(cls, payload: bytes) -> ProducerEntry:
        """The entry of a binary form."""
        epoch, sequence = cls._layout.unpack_from(payload)
        return cls(payload[cls._layout.size :].decode(), epoch, sequence)


@dataclass(frozen=True, slots=True)
class GroupOffsetsEntry:
    """Offsets that a group commits: the next one to read, per partition of one topic."""

    group: str
    #: The generation in which the committing member joined; -1 for an administrator.
    generation: int
    topic_id: bytes
    offsets: tuple[tuple[int, int], ...]

    kind = 3
    _layout = struct.Struct("<q16sHxxI")
    _pair = struct.Struct("<IxxxxQ")

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        name = self.group.encode()
        head = self._layout.pack(self.generation, self.topic_id, len(name), len(self.offsets))
        return head + b"".join(self._pair.pack(*pair) for pair in self.offsets) + name

    @classmethod
    def parse(cls, payload: bytes) -> GroupOffsetsEntry:
        """The entry of a binary form."""
        generation, topic_id, name_length, count = cls._layout.unpack_from(payload)
        end = cls._layout.size + count * cls._pair.size
        pairs = tuple(cls._pair.iter_unpack(payload[cls._layout.size : end]))
        return cls(payload[end : end + name_length].decode(), generation, topic_id, pairs)


@dataclass(frozen=True, slots=True)
class BatchIdEntry:
    """The batch of an application, such as a Spark query, that this commit stores at most once."""

    application: str
    version: int

    kind = 4
    _layout = struct.Struct("<q")

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        return self._layout.pack(self.version) + self.application.encode()

    @classmethod
    def parse(cls, payload: bytes) -> BatchIdEntry:
        """The entry of a binary form."""
        return cls(payload[cls._layout.size :].decode(), *cls._layout.unpack_from(payload))


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """The whole new definition of a topic that is created, altered, enlarged or deleted."""

    topic_id: bytes
    name: str
    #: 0 deletes the topic.
    partitions: int
    settings: Mapping[str, Any]

    kind = 5

    def payload(self) -> bytes:
        """The JSON of this entry in a commit, without its kind."""
        return compact_json(
            {
                "id": self.topic_id.hex(),
                "name": self.name,
                "partitions": self.partitions,
                "settings": dict(self.settings),
            }
        )

    @classmethod
    def parse(cls, payload: bytes) -> TopicEntry:
        """The entry of a JSON form."""
        value = json.loads(payload)
        return cls(
            bytes.fromhex(value["id"]), value["name"], value["partitions"], value["settings"]
        )


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """The exclusive member of a group joins, or reads other partitions than before.

    Joining takes a new generation, and reading other partitions keeps it. Generation 0 deletes the
    group.
    """

    group: str
    generation: int
    member: str
    client: str
    #: The partitions that the member reads, by topic.
    assignment: Mapping[str, list[int]]

    kind = 6

    def payload(self) -> bytes:
        """The JSON of this entry in a commit, without its kind."""
        return compact_json(
            {
                "group": self.group,
                "generation": self.generation,
                "member": self.member,
                "client": self.client,
                "assignment": dict(self.assignment),
            }
        )

    @classmethod
    def parse(cls, payload: bytes) -> GroupEntry:
        """The entry of a JSON form."""
        value = json.loads(payload)
        return cls(
            value["group"],
            value["generation"],
            value["member"],
            value["client"],
            value["assignment"],
        )


Entry = (
    RecordsEntry
    | ProducerEntry
    | GroupOffsetsEntry
    | BatchIdEntry
    | TopicEntry
    | GroupEntry
    | GroupPlanEntry
    | GroupReleaseEntry
    | LayoutEntry
    | CondemnEntry
    | QueueChange
    | UniqEntry
    | TurnEntry
)

INLINE_ENTRY_BYTES = _ENTRY.size + _LAYOUT.size

_PARSERS: Mapping[int, Callable[[bytes], Entry]] = {
    _RECORDS: RecordsEntry.parse,
    _STAGED_RECORDS: RecordsEntry.parse_staged,
    **{each.kind: each.parse for each in get_args(Entry) if each is not RecordsEntry},
}


def named_file(entry: Entry) -> bytes:
    """The id of the staged file or segment that an entry names; empty when it names none."""
    if isinstance(entry, RecordsEntry):
        return entry.staged
    return entry.file_id if isinstance(entry, SegmentEntry) else b""


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry in a directory; `INLINE_ENTRY_BYTES` long for an inline batch."""
    payload = entry.payload()
    return _ENTRY.pack(entry.kind, 0, len(payload)) + payload + bytes(-len(payload) % 8)


def decode_entries(directory: bytes) -> Iterator[Entry]:
    """The entries of a directory, in order; FormatVersionError for a kind of a newer version."""
    position = 0
    while position < len(directory):
        kind, flags, length = _ENTRY.unpack_from(directory, position)
        position += _ENTRY.size
        parser = _PARSERS.get(kind)
        if parser is None or flags:
            raise FormatVersionError(
                f"commit holds an entry of kind {kind} (flags {flags}), which this version of kmq "
                "does not know; read the store with a newer kmq",
                kind=kind,
            )
        yield parser(directory[position : position + length])
        position += length + -length % 8
