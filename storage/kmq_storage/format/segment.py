"""Segments: the sealed records of one partition as an Arrow IPC file that any Arrow tool opens.

The file's footer metadata `kmq.batches` says per record batch which offsets it covers, where
its message stands and what its checksum is, so a reader that has the footer reads one batch
with one more access. Every byte is covered: batches by their own checksums, what stands before
them by one in that text, what stands behind them by one in the manifest.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from kmq_storage import limits
from kmq_storage.errors import CorruptionError
from kmq_storage.format.checksum import checksum
from kmq_storage.model import Chunk, Location

_MAGIC_BYTES = 8
_FOOTER_BYTES = 8 * 1024
_CONTINUATION = b"\xff\xff\xff\xff"
_FACTS = struct.Struct("<QQIQIIqqQ")
_DIGITS = 2 * _FACTS.size
#: The file's id and a colon, the checksum of what stands before the batches, a colon.
_HEAD_DIGITS = 8


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """A record batch with the `offset` column, and which offsets it covers."""

    base_offset: int
    #: The offset after the last one that is covered.
    end_offset: int
    batch: pa.RecordBatch
    min_timestamp: int
    max_timestamp: int
    #: Bytes of keys, values, headers and properties.
    size: int


@dataclass(frozen=True, slots=True)
class EncodedSegment:
    """The bytes of a segment, and what the manifest must know to read them."""

    contents: pa.Buffer
    footer_position: int
    footer_checksum: int


def encode_segment(
    batches: Sequence[SealedBatch],
    schema: pa.Schema,
    file_id: bytes,
    *,
    compression: str | None = None,
) -> EncodedSegment:
    """The file of these batches in offset order; `compression` is lz4, zstd or None (mappable)."""
    room = 2 * schema.serialize().size + (_DIGITS + 256) * len(batches) + _FOOTER_BYTES
    size = room + sum(pa.ipc.get_record_batch_size(each.batch) for each in batches)
    target = pa.allocate_buffer(size + size // 64)  # what can't be compressed grows a little
    sink = pa.FixedSizeBufferWriter(target)
    unknown = _text(file_id, 0, b"").ljust(_text_length(len(batches)), ".")
    ends = [_MAGIC_BYTES + schema.serialize().size]
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(
        sink, schema, options=options, metadata={"kmq.batches": unknown}
    ) as writer:
        for each in batches:
            writer.write_batch(each.batch)
            ends.append(sink.tell())
    contents = target.slice(0, sink.tell())
    facts = [
        _facts(each, contents, start, end)
        for each, start, end in zip(batches, ends, ends[1:], strict=False)
    ]
    text = _text(file_id, checksum(contents.slice(0, ends[0])), b"".join(facts))
    place = _find(contents.slice(ends[-1]), file_id) + ends[-1]
    memoryview(target).cast("B")[place : place + len(text)] = text.encode()
    return EncodedSegment(contents, ends[-1], checksum(contents.slice(ends[-1])))


def _facts(each: SealedBatch, contents: pa.Buffer, start: int, end: int) -> bytes:
    message = contents.slice(start, end - start)
    assert message.slice(0, 4).to_pybytes() == _CONTINUATION, "an Arrow message begins"
    return _FACTS.pack(
        each.base_offset,
        each.end_offset,
        each.batch.num_rows,
        start,
        message.size,
        checksum(message),
        each.min_timestamp,
        each.max_timestamp,
        each.size,
    )


def _text(file_id: bytes, head_checksum: int, facts: bytes) -> str:
    return f"{file_id.hex()}:{head_checksum:08x}:{facts.hex()}"


def _text_length(batches: int) -> int:
    return len(_text(bytes(16), 0, b"")) + _DIGITS * batches


def _find(footer: pa.Buffer, file_id: bytes) -> int:
    """Where the text of `kmq.batches` begins: the random id of the file stands nowhere else."""
    raw: bytes = footer.to_pybytes()
    return raw.find(file_id.hex().encode())


@dataclass(frozen=True, slots=True)
class SegmentFooter:
    """What the footer of a segment says of its batches."""

    #: The CRC of what stands before the first batch.
    head_checksum: int
    chunks: tuple[Chunk, ...]


def decode_footer(
    footer: pa.Buffer, file: str, file_id: bytes, *, columns: int, expected: int
) -> SegmentFooter:
    """The batches of a segment from the part of the file behind them.

    CorruptionError when its checksum is not the expected one.
    """
    if checksum(footer) != expected:
        raise CorruptionError(f"segment footer checksum does not match in {file}", file=file)
    place = _find(footer, file_id)
    if place < 0:
        raise CorruptionError(f"{file} is another segment than its name says", file=file)
    raw = footer.slice(place).to_pybytes()
    start = 2 * len(file_id) + 1
    head = int(raw[start : start + _HEAD_DIGITS], 16)
    digits = raw[start + _HEAD_DIGITS + 1 :]
    facts = bytes.fromhex(digits[: _hex_length(digits)].decode())
    return SegmentFooter(
        head, tuple(_chunk(fact, file, columns) for fact in _FACTS.iter_unpack(facts))
    )


def _hex_length(digits: bytes) -> int:
    """How many hex digits the text goes on for; a zero byte ends every text in a footer."""
    return digits.find(b"\0")


def _chunk(fact: tuple[int, ...], file: str, columns: int) -> Chunk:
    base, end, rows, position, length, check, low, high, size = fact
    location = Location(file, position, length)
    return Chunk(base, end, rows, location, check, columns, low, high, size)


def segment_schema(schema: pa.Schema, topic: str, partition: int, base_offset: int) -> pa.Schema:
    """The schema of a segment, with the metadata that says what it holds."""
    return schema.with_metadata(
        {
            "kmq.format": str(limits.FORMAT_VERSION),
            "kmq.topic": topic,
            "kmq.partition": str(partition),
            "kmq.base_offset": str(base_offset),
        }
    )
