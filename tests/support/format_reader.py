"""A reader of stores on a disk that was written from storage/FORMAT.md alone.

It proves that the description is complete, and shows what a reader in another language has to do.
It imports nothing of kmq. "Section" means a section of FORMAT.md; `format_batches.py` has sections
5 and 6.1. What a reader has to refuse raises `RefusedError`.

It reads the records of each topic. It passes over entries that say nothing about records, the
directory of runs (section 6.1.1), and the rules for what a repair gave up (section 9).
"""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from awscrt.checksums import crc32c

from tests.support.format_batches import (
    RefusedError,
    batch_schema,
    read_rows,
    require,
    schemas_of,
    segment_rows,
)

# Section 4: the kinds of entries that say where records are, and the others.
RECORDS, TOPIC, SEGMENT, TRIM, GAP, STAGED_RECORDS = 1, 5, 7, 8, 9, 10
ABOUT_RECORDS = {RECORDS, TOPIC, SEGMENT, TRIM, GAP, STAGED_RECORDS}
ABOUT_SOMETHING_ELSE = {2, 3, 4, 6, *range(11, 26)}
KINDS = ABOUT_RECORDS | ABOUT_SOMETHING_ELSE

# Section 4.3.
SETTINGS = {
    "retention",
    "retention_bytes",
    "cleanup",
    "capacity",
    "max_record_bytes",
    "uniq_window",
    "compression",
    "schemas",
    "keyed",
    "ends",
    "trims",
}

# Section 6.3.
STATE_MEMBERS = {
    "lsn",
    "cursor",
    "definitions",
    "written",
    "condemned",
    "topics",
    "groups",
    "generations",
    "queues",
    "producers",
    "batches",
    "gone",
}
TOPIC_MEMBERS = {"id", "name", "settings", "columns", "partitions", "tombstones", "begun", "turns"}
STATE_METADATA = {b"kmq.state", b"kmq.queues", b"kmq.uniqs"}

# Section 6.2: where a row of the manifest finds its records.
IN_LOG, IN_STAGED_FILE, IN_SEGMENT = 0, 1, 2


class Row(NamedTuple):
    """A row of the manifest: where the records of some offsets of a partition are."""

    base: int
    end: int
    kind: int
    file: bytes  # the id, or in the log the first LSN
    position: int
    length: int
    checksum: int
    columns: int


@dataclass
class Partition:
    """The offsets of a partition, and where its records are."""

    start: int = 0
    end: int = 0
    rows: list[Row] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def append(self, row: Row) -> None:
        require(row.base == self.end < row.end, "records begin at the partition's end")
        self.rows.append(row)
        self.end = row.end

    def holds(self, offset: int) -> bool:
        return offset >= self.start and not any(a <= offset < b for a, b in self.gaps)


@dataclass
class Topic:
    """A topic as its last definition says."""

    id: bytes
    name: str
    settings: dict[str, Any]
    partitions: list[Partition] = field(default_factory=list)

    def __post_init__(self) -> None:
        require(set(self.settings) <= SETTINGS, f"settings of {self.name}: {self.settings}")


@dataclass
class Cursor:
    """The place in the log where the next frame begins (6.3)."""

    lsn: int = 0
    chain: int | None = 0
    file: int | None = None
    position: int = 0


HEADER = struct.Struct("<4sHHQQq16sQQIIII44xI")


class Header(NamedTuple):
    """The header of a frame (section 3.2)."""

    magic: bytes
    flags: int
    header_length: int
    lsn: int
    length: int
    time: int
    nonce: bytes
    previous: int
    durable: int
    entries: int
    directory_length: int
    directory_checksum: int
    body: int
    checksum: int


class FormatReader:
    """A store as its files say, from its newest checkpoint on, or from the log alone."""

    def __init__(self, root: Path, *, log_alone: bool = False) -> None:
        self.root = root
        self.topics: dict[bytes, Topic] = {}
        #: The kinds of entries that were met.
        self.kinds: set[int] = set()
        self._seed = _read_identity(root / "kmq.json")
        self._logs = {int(path.stem): path.read_bytes() for path in root.glob("log/*.log")}
        self._cursor = Cursor()
        if not log_alone:
            self._read_checkpoint()
        while self._read_frame():
            pass

    def records(self, topic: Topic, number: int) -> dict[int, dict[str, Any]]:
        """The records of a partition by their offsets."""
        partition, versions = topic.partitions[number], schemas_of(topic.settings)
        found: dict[int, dict[str, Any]] = {}
        for row in partition.rows:
            schema = batch_schema(row.columns, versions)
            content = self._content(row, topic, number)
            proven = content[row.position : row.position + row.length]
            if row.kind == IN_SEGMENT:
                require(crc32c(proven) == row.checksum, "the CRC of a segment's footer")
                found.update(segment_rows(content, row.file, row.position, schema))
            else:
                rows = read_rows(proven, row.checksum, schema)
                require(len(rows) == row.end - row.base, "each offset has a row")
                found.update(enumerate(rows, row.base))
        return {offset: found[offset] for offset in sorted(found) if partition.holds(offset)}

    def _content(self, row: Row, topic: Topic, number: int) -> bytes:
        """The file that a row of the manifest names (sections 1 and 6.2)."""
        if row.kind == IN_LOG:
            return self._logs[int.from_bytes(row.file, "little")]
        if row.kind == IN_STAGED_FILE:
            return (self.root / "staged" / f"{row.file.hex()}.ipc").read_bytes()
        folder = self.root / "segments" / topic.id.hex() / str(number)
        return (folder / f"{row.base:020d}-{row.file.hex()}.arrow").read_bytes()

    # Checkpoints: sections 6.2 and 6.3.

    def _read_checkpoint(self) -> None:
        """Take the newest checkpoint that proves itself, if there is one."""
        for path in sorted(self.root.glob("checkpoints/*.arrow"), reverse=True):
            content = path.read_bytes()
            if path.stem[21:] == hashlib.blake2b(content, digest_size=16).hexdigest():
                self._take_checkpoint(pa.ipc.open_file(content).read_all())
                return

    def _take_checkpoint(self, pages: pa.Table) -> None:
        require(set(pages.schema.metadata) <= STATE_METADATA, "metadata of a checkpoint")
        state = json.loads(pages.schema.metadata[b"kmq.state"])
        require(set(state) <= STATE_MEMBERS, f"members of a checkpoint: {set(state)}")
        for member in state["topics"]:
            require(set(member) <= TOPIC_MEMBERS, f"members of a topic: {set(member)}")
            partitions = [
                Partition(start, end, gaps=[(gap[0], gap[1]) for gap in gaps])
                for start, end, _, _, _, gaps in member["partitions"]
            ]
            topic_id = bytes.fromhex(member["id"])
            self.topics[topic_id] = Topic(topic_id, member["name"], member["settings"], partitions)
        for page in pages.to_pylist():
            self._take_page(page)
        place = state["cursor"]
        self._cursor = Cursor(place["lsn"], place["chain"], place["file"], place["position"])

    def _take_page(self, page: dict[str, Any]) -> None:
        content = (self.root / "pages" / f"{page['page_id'].hex()}.arrow").read_bytes()
        require(crc32c(content) == page["checksum"], "the CRC of a page")
        rows = pa.ipc.open_file(content).read_all().to_pylist()
        require(len(rows) == page["rows"], "the rows of a page")
        for row in rows:
            partition = self.topics[row["topic_id"]].partitions[row["partition"]]
            place = ("kind", "file", "position", "length", "checksum", "columns")
            offsets = row["base_offset"], row["end_offset"]
            partition.rows.append(Row(*offsets, *(row[name] for name in place)))

    # The log: section 3.

    def _read_frame(self) -> bool:
        """Apply the next frame; False at the end of the log."""
        at = self._cursor
        file = max((first for first in self._logs if first <= at.lsn + 1), default=None)
        if file is None:
            return False
        log, position = self._logs[file], at.position if file == at.file else 0
        if not any(log[position : position + HEADER.size]):
            return False
        header = Header(*HEADER.unpack_from(log, position))
        frame = log[position : position + header.length]
        self._prove(header, frame)
        for kind, payload in entries(_directory(header, frame)):
            self._apply(kind, payload, file, position)
        chain = int.from_bytes(header.nonce[:8], "little")
        self._cursor = Cursor(header.lsn, chain, file, position + header.length)
        return True

    def _prove(self, header: Header, frame: bytes) -> None:
        """Whether the frame proves itself (section 9)."""
        at = self._cursor
        require(header.magic == b"KMQ1", "the magic of a frame")
        checksum = crc32c(frame[: HEADER.size - 4], self._seed)
        require(header.checksum == checksum, "the CRC of a header")
        require((header.flags, header.header_length) == (0, HEADER.size), "a newer frame")
        require(header.lsn == at.lsn + 1, "the LSN of a frame")
        require(at.chain is None or header.previous == at.chain, "the chain of nonces")
        trailer = header.lsn ^ int.from_bytes(b"KMQ1KMQ1", "little")
        require(frame[-8:] == trailer.to_bytes(8, "little"), "the trailer of a frame")

    # Entries: section 4.

    def _apply(self, kind: int, payload: bytes, file: int, position: int) -> None:
        self.kinds.add(kind)
        if kind == TOPIC:
            self._define_topic(json.loads(payload))
        elif kind == RECORDS:
            self._append(payload, file, position)
        elif kind == STAGED_RECORDS:
            self._append_staged(payload)
        elif kind in ABOUT_RECORDS:
            topic_id, number = struct.unpack_from("<16sI", payload)
            # Of a topic that was deleted before, they have no effect.
            if topic_id in self.topics:
                change = {SEGMENT: _take_segment, TRIM: _trim, GAP: _take_gap}[kind]
                change(self.topics[topic_id].partitions[number], payload)

    def _define_topic(self, definition: dict[str, Any]) -> None:
        """Section 4.3."""
        topic_id = bytes.fromhex(definition["id"])
        known = self.topics.pop(topic_id, None)
        if definition["partitions"] == 0:
            return
        partitions = known.partitions if known else []
        partitions += [Partition() for _ in range(len(partitions), definition["partitions"])]
        name, settings = definition["name"], definition["settings"]
        self.topics[topic_id] = Topic(topic_id, name, settings, partitions)

    def _append(self, payload: bytes, file: int, frame_at: int) -> None:
        """Kind 1."""
        topic_id, number, rows, base, position, length, checksum, columns, staged = (
            struct.unpack_from("<16sIIQQIIHH", payload)
        )
        if staged:
            place = (IN_STAGED_FILE, payload[80:96], position)
        else:
            place = (IN_LOG, file.to_bytes(16, "little"), frame_at + position)
        row = Row(base, base + rows, *place, length, checksum, columns)
        self.topics[topic_id].partitions[number].append(row)

    def _append_staged(self, payload: bytes) -> None:
        """Kind 10."""
        topic_id, file, number, rows, base, position, length, checksum, columns = (
            struct.unpack_from("<16s16sIIQIII20xH", payload)
        )
        row = Row(base, base + rows, IN_STAGED_FILE, file, position, length, checksum, columns)
        self.topics[topic_id].partitions[number].append(row)


def _read_identity(path: Path) -> int:
    """The seed that `kmq.json` tells (section 2)."""
    members = json.loads(path.read_bytes())
    checksum = members.pop("crc32c")
    require(checksum == crc32c(json.dumps(members, sort_keys=True).encode()), "kmq.json")
    require(members["format"] in (1, 2), f"format {members['format']}")
    return crc32c(uuid.UUID(members["store_id"]).bytes)


def _directory(header: Header, frame: bytes) -> bytes:
    directory = frame[HEADER.size : HEADER.size + header.directory_length]
    require(crc32c(directory) == header.directory_checksum, "the CRC of a directory")
    require(len(list(entries(directory))) == header.entries, "the number of entries")
    return directory


def entries(directory: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and payload of each entry (section 4); unknown kinds and flags are refused."""
    position = 0
    while position < len(directory):
        kind, flags, length = struct.unpack_from("<HHI", directory, position)
        if kind not in KINDS or flags:
            raise RefusedError(f"an entry of kind {kind} with flags {flags}")
        yield kind, directory[position + 8 : position + 8 + length]
        position += 8 + length + -length % 8


def _take_segment(partition: Partition, payload: bytes) -> None:
    """Kind 7 (section 4.7)."""
    columns, base, end, file, file_length, footer_at, checksum = struct.unpack_from(
        "<HxxQQ8x16sQQI", payload, 20
    )
    footer_length = file_length - footer_at
    row = Row(base, end, IN_SEGMENT, file, footer_at, footer_length, checksum, columns)
    kept = [each for each in partition.rows if each.end <= base or each.base >= end]
    partition.rows = [*kept, row]
    if partition.end == 0:
        partition.start = base
    partition.end = max(partition.end, end)


def _trim(partition: Partition, payload: bytes) -> None:
    """Kind 8 (section 4.7)."""
    (start,) = struct.unpack_from("<Q", payload, 24)
    partition.start = max(partition.start, start)
    partition.end = max(partition.end, start)


def _take_gap(partition: Partition, payload: bytes) -> None:
    """Kind 9 (section 4.7)."""
    start, end = struct.unpack_from("<QQ", payload, 24)
    partition.gaps.append((start, end))
    partition.end = max(partition.end, end)
