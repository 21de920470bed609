"""Segments: the sealed records of one partition, as an Arrow IPC file that any Arrow tool opens.

The footer's metadata `kmq.batches` has for each record batch its offsets, the place of its message,
and its checksums, also behind each column. So a reader that has the footer reads a batch, or some
of its columns, with one more access. Checksums cover every byte of the file: each batch has its
own, the bytes before the first batch have one in this metadata, and the bytes behind the last batch
have one in the manifest.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from kmq_storage import limits
from kmq_storage.errors import CorruptionError
from kmq_storage.format.checksum import Bytes, checksum, checksum_of
from kmq_storage.format.message import FILE_MAGIC_BYTES, placed_footer, schema_text
from kmq_storage.format.message_place import MessagePlace, check_place, unpack_place
from kmq_storage.format.packing import PART, PackedMessage, packed
from kmq_storage.format.pieces import Pieces
from kmq_storage.format.written_by import FORMAT, check_format
from kmq_storage.model import Chunk, Location

if TYPE_CHECKING:
    from kmq_storage.format.queue_directory import DirectoryEncoder

_FACTS = struct.Struct("<QQIQIIqqQ")
_HEAD_DIGITS = 8
#: Fills up the metadata text, whose length must be known before the batches are.
_FILLER = "."
_SCHEMAS = "kmq.schemas"
_ORDER, _END = "kmq.order", "kmq.end_offset"
#: A run has two lists: its queues, and those that begin anew in it.
_LISTS = 2
_HEX = re.compile(rb"[0-9a-f]*")


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """A record batch with the `offset` column, and the offsets that it covers."""

    base_offset: int
    #: The offset after the last one that is covered.
    end_offset: int
    batch: pa.RecordBatch
    min_timestamp: int
    max_timestamp: int
    #: Bytes of keys, values, headers and properties.
    size: int


class SegmentEncoder:
    """Makes the bytes of one segment, batch by batch; it keeps no batch."""

    def __init__(
        self,
        schema: pa.Schema,
        file_id: bytes,
        *,
        most: int,
        compression: str | None,
        schemas: Sequence[str] = (),
        directory: DirectoryEncoder | None = None,
    ) -> None:
        self._schema = schema
        #: For a run: the directory of its queues, which is complete after the last batch.
        self._directory = directory
        #: The schema versions of a typed topic, so that the segment can be read by itself.
        self._versions = {_SCHEMAS: json.dumps(list(schemas))} if schemas else {}
        self._file_id = file_id
        #: The most batches.
        self._most = most
        #: The compression: lz4, zstd, or None, which can be mapped.
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self._facts: list[bytes] = []
        self._parts: list[bytes] = []
        #: For each message, its position, and the lengths of its head and body.
        self._messages: list[tuple[int, int, int]] = []
        self._head_checksum: int | None = None
        self._end_offset = 0
        # Complete after the last buffer.
        self.rows = self.size = self.length = 0
        self.footer_position = self.footer_checksum = 0
        self.min_timestamp = self.max_timestamp = 0

    def buffers(self, batches: Iterable[SealedBatch]) -> Iterator[Bytes]:
        """The bytes of the file with these batches in offset order, piece by piece."""
        pieces = Pieces()
        length = _text_length(self._most, len(self._schema), run=self._directory is not None)
        unknown = _text(self._file_id, 0).ljust(length, _FILLER)
        writer = pa.ipc.new_file(
            pa.PythonFile(pieces, mode="w"),
            self._schema,
            options=self._options,
            metadata={"kmq.batches": unknown, **self._versions},
        )
        head = FILE_MAGIC_BYTES + self._schema.serialize().size
        self.footer_position = head
        for each in batches:
            writer.write_batch(each.batch)
            yield from self._head(pieces, head)
            yield from self._message(packed(pieces.take(), self._schema), each)
        writer.close()
        yield from self._head(pieces, head)
        if self._directory is not None:
            yield from self._directory.messages(self.footer_position)
            self.footer_position = self._directory.end
        footer = self._footer(b"".join(map(bytes, pieces.take())))
        self.length = self.footer_position + len(footer)
        yield footer

    def _head(self, pieces: Pieces, head: int) -> Iterator[Bytes]:
        """The bytes before the first batch, which are written together with it."""
        if self._head_checksum is None:
            buffers = pieces.take(head)
            self._head_checksum = checksum_of(buffers)
            yield from buffers

    def _message(self, message: PackedMessage, each: SealedBatch) -> Iterator[Bytes]:
        assert each.base_offset >= self._end_offset, "batches are in the order of offsets"
        self._end_offset = each.end_offset
        start, length = self.footer_position, message.length
        low, high = each.min_timestamp, each.max_timestamp
        self.min_timestamp = min(self.min_timestamp, low) if self._facts else low
        self.max_timestamp = max(self.max_timestamp, high) if self._facts else high
        facts = (each.base_offset, each.end_offset, each.batch.num_rows, start, length)
        self._facts.append(_FACTS.pack(*facts, message.checksum, low, high, each.size))
        self._parts.append(message.parts)
        self._messages.append((start, message.head_length, message.body_length))
        self.rows += each.batch.num_rows
        self.size += each.size
        self.footer_position = start + length
        yield from message.buffers

    def _footer(self, footer: bytes) -> bytes:
        """The bytes behind the last batch, with the completed metadata text."""
        assert len(self._facts) <= self._most, "there are more batches than was said"
        assert self._head_checksum is not None, "the head is written before the footer"
        facts, parts = b"".join(self._facts), b"".join(self._parts)
        text = _text(self._file_id, self._head_checksum, facts, parts).encode()
        if self._directory is not None:
            text += b"".join(
                b":%b" % place.pack().hex().encode() for place in self._directory.lists
            )
        place = _find(footer, self._file_id)
        footer = placed_footer(footer, self._messages)
        footer = footer[:place] + text + footer[place + len(text) :]
        self.footer_checksum = checksum(footer)
        return footer


def _text(file_id: bytes, head_checksum: int, facts: bytes = b"", parts: bytes = b"") -> str:
    return f"{file_id.hex()}:{head_checksum:08x}:{facts.hex()}:{parts.hex()}"


def _text_length(batches: int, columns: int, *, run: bool) -> int:
    per_batch = _FACTS.size + (columns + 1) * PART.size
    lists = _LISTS * (1 + 2 * MessagePlace.SIZE) if run else 0
    return len(_text(bytes(16), 0)) + 2 * per_batch * batches + lists


def _find(footer: bytes, file_id: bytes) -> int:
    """Where the text of `kmq.batches` begins, found by the file's random id."""
    return footer.find(file_id.hex().encode())


@dataclass(frozen=True, slots=True)
class SegmentFooter:
    """The decoded footer of a segment."""

    #: The CRC of the bytes before the first batch.
    head_checksum: int
    #: The batches. Those of a run are sorted by queue; their offsets are numbers of rows instead.
    chunks: tuple[Chunk, ...]
    #: For a run: the places of the list of its directory's blocks, and of the list of queues that
    #: begin anew, if there are any.
    directory: MessagePlace | None
    beginnings: MessagePlace | None

    @property
    def end(self) -> int:
        """Where the footer begins: behind the last batch, or behind the directory."""
        listed = self.beginnings or self.directory
        if listed is not None:
            return listed.end
        return self.chunks[-1].location.position + self.chunks[-1].location.length


def decode_footer(
    footer: pa.Buffer, file: str, file_id: bytes, *, columns: int, expected: int | None
) -> SegmentFooter:
    """Decode the footer of a segment from the bytes behind its batches.

    CorruptionError when the checksum is not `expected`, FormatVersionError when a newer kmq wrote
    the file. If `expected` is None, the footer is not verified; each batch still has its own
    checksum.
    """
    if expected is not None and checksum(footer) != expected:
        raise CorruptionError(f"segment footer checksum does not match in {file}", file=file)
    raw = footer.to_pybytes()
    try:  # a rebuilt manifest has the checksum of the bytes it found, damaged or not
        if expected is not None:
            check_format(schema_text(raw, FORMAT), file)
        return _decoded_footer(raw, file, file_id, columns)
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptionError(f"the footer of segment {file} can't be read", file=file) from error


def _decoded_footer(raw: bytes, file: str, file_id: bytes, columns: int) -> SegmentFooter:
    place = _find(raw, file_id)
    if place < 0:
        raise CorruptionError(f"{file} is another segment than its name says", file=file)
    start = place + 2 * len(file_id) + 1
    head = int(raw[start : start + _HEAD_DIGITS], 16)
    facts, behind = _unhex(raw, start + _HEAD_DIGITS + 1)
    parts, behind = _section(raw, behind)
    directory, behind = _section(raw, behind)
    beginnings, _ = _section(raw, behind)
    each = len(parts) // max(len(facts) // _FACTS.size, 1)
    return SegmentFooter(
        head,
        tuple(
            _chunk(fact, file, columns, parts[index * each : (index + 1) * each])
            for index, fact in enumerate(_FACTS.iter_unpack(facts))
        ),
        unpack_place(directory) if directory else None,
        unpack_place(beginnings) if beginnings else None,
    )


def chunks_still_named(
    footer: pa.Buffer, file: str, file_id: bytes, columns: int
) -> Iterator[Chunk]:
    """The batches that can still be found in a damaged footer, without their parts.

    Some may be wrong: only those whose checksum matches are batches.
    """
    raw = footer.to_pybytes()
    place, digits = _find(raw, file_id), 2 * _FACTS.size
    if place < 0:
        return
    for start in range(place + len(_text(file_id, 0)) - 1, len(raw) - digits + 1, digits):
        with suppress(ValueError):  # the text is damaged here, or has ended
            (fact,) = _FACTS.iter_unpack(bytes.fromhex(raw[start : start + digits].decode()))
            yield _chunk(fact, file, columns, b"")


def _section(raw: bytes, at: int) -> tuple[bytes, int]:
    """The bytes of an optional section of the text, and the position behind it."""
    return _unhex(raw, at + 1) if raw[at : at + 1] == b":" else (b"", at)


def _unhex(raw: bytes, start: int) -> tuple[bytes, int]:
    """The bytes of the hex digits at a position, and the position behind them."""
    digits = _HEX.match(raw, start)
    assert digits is not None, "the pattern matches no digits, too"
    return bytes.fromhex(digits[0].decode()), digits.end()


def _chunk(fact: tuple[int, ...], file: str, columns: int, parts: bytes) -> Chunk:
    base, end, rows, position, length, check, low, high, size = fact
    check_place(position, length)
    location = Location(file, position, length)
    return Chunk(base, end, rows, location, check, columns, low, high, size, parts)


def segment_schema(schema: pa.Schema, topic: str, partition: int, base_offset: int) -> pa.Schema:
    """The schema of a segment, with metadata that names its topic, partition and first offset."""
    return schema.with_metadata(
        {
            "kmq.format": str(limits.FORMAT_VERSION),
            "kmq.topic": topic,
            "kmq.partition": str(partition),
            "kmq.base_offset": str(base_offset),
        }
    )


def run_schema(schema: pa.Schema, end_offset: int) -> pa.Schema:
    """The schema of a run, marked as such, since its batches don't tell."""
    metadata = {**schema.metadata, _ORDER: "queue", _END: str(end_offset)}
    return schema.with_metadata(metadata)


def end_of_run(schema: pa.Schema) -> int | None:
    """The end offset of a run; None for another segment."""
    end = (schema.metadata or {}).get(_END.encode())
    return None if end is None else int(end)


def schemas_of(segment: pa.ipc.RecordBatchFileReader) -> tuple[str, ...]:
    """The schema versions in a segment's metadata; empty for an untyped topic."""
    return tuple(json.loads((segment.metadata or {}).get(_SCHEMAS.encode(), b"[]")))
