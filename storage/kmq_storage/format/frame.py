"""The frame: the format of one commit, the same on a disk and in a bucket.

A frame consists of a header of 128 bytes, a directory of entries, the inline record batches, and a
trailer. Header and directory have a checksum each, and the directory has one for every record
batch. The header's checksum is seeded with the store's id, and the header names its LSN and the
previous commit. So neither bytes of another store nor stale bytes of this store pass as the next
frame.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from kmq_storage.errors import FormatVersionError
from kmq_storage.format.checksum import checksum

MAGIC = b"KMQ1"
ALIGNMENT = 64
HEADER_BYTES = 128
TRAILER_BYTES = 8
_MAGIC_WORD = int.from_bytes(MAGIC * 2, "little")

#: The magic, flags (none yet) and the header's length.
_BEGIN = MAGIC + struct.pack("<HH", 0, HEADER_BYTES)
#: The fields behind it, in the order of `FrameHeader`.
_FIELDS = struct.Struct("<QQq16sQQIIII")
_CHECKED_BYTES = HEADER_BYTES - 4
_UINT32 = struct.Struct("<I")
_UINT64 = struct.Struct("<Q")


class InvalidFrameError(Exception):
    """The bytes are not the expected frame. The log decides whether this is damage."""


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The header of a frame; positions are in bytes from the frame's start."""

    lsn: int
    length: int
    #: Microseconds since 1970 UTC; never goes back from one commit to the next.
    time: int
    nonce: bytes
    #: The low 64 bits of the previous commit's nonce.
    previous: int
    #: The highest LSN known to be on disk when this frame was written.
    durable_lsn: int
    entries: int
    directory_length: int
    directory_checksum: int
    body_position: int

    @property
    def chain(self) -> int:
        """The value that the next frame must have as `previous`."""
        return chain_of(self.nonce)


def chain_of(nonce: bytes) -> int:
    """The low 64 bits of a nonce."""
    return int.from_bytes(nonce[:8], "little")


def align(position: int) -> int:
    """The next multiple of 64."""
    return -(-position // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class BodyLayout:
    """The position of each record batch in a frame, and the frame's length."""

    body_position: int
    positions: tuple[int, ...]
    length: int


def layout(directory_length: int, bodies: Sequence[pa.Buffer]) -> BodyLayout:
    """Place record batches so that the Arrow body of each message begins at a multiple of 64.

    A reader can then map the buffers without copying them. The message's metadata is before the
    body.
    """
    end = body_position = align(HEADER_BYTES + directory_length)
    positions = []
    for body in bodies:
        metadata = message_metadata_bytes(body)
        position = align(end + metadata) - metadata
        positions.append(position)
        end = position + body.size
    return BodyLayout(body_position, tuple(positions), align(end + TRAILER_BYTES))


def message_metadata_bytes(message: pa.Buffer) -> int:
    """The bytes before the body of an Arrow message: continuation, length, metadata."""
    return 8 + int.from_bytes(message.slice(4, 4).to_pybytes(), "little")


def _encode_header(header: FrameHeader, store_seed: int) -> bytes:
    """The 128 bytes of a header."""
    fields = _FIELDS.pack(
        header.lsn,
        header.length,
        header.time,
        header.nonce,
        header.previous,
        header.durable_lsn,
        header.entries,
        header.directory_length,
        header.directory_checksum,
        header.body_position,
    )
    checked = (_BEGIN + fields).ljust(_CHECKED_BYTES, b"\0")
    return checked + _UINT32.pack(checksum(checked, store_seed))


def encode_frame(
    header: FrameHeader,
    directory: bytes,
    placed: BodyLayout,
    bodies: Sequence[pa.Buffer],
    store_seed: int,
) -> list[bytes | pa.Buffer]:
    """The buffers of a whole frame, in order, paddings included."""
    buffers: list[bytes | pa.Buffer] = [_encode_header(header, store_seed), directory]
    end = HEADER_BYTES + len(directory)
    for position, body in zip(placed.positions, bodies, strict=True):
        buffers += (bytes(position - end), body)
        end = position + body.size
    buffers.append(bytes(placed.length - TRAILER_BYTES - end))
    buffers.append(_UINT64.pack(header.lsn ^ _MAGIC_WORD))
    return buffers


def part_of(buffer: pa.Buffer, position: int, length: int) -> pa.Buffer:
    """The bytes from a position on, at most `length`, as far as the buffer goes."""
    start = min(position, buffer.size)
    return buffer.slice(start, min(length, buffer.size - start))


def is_blank(log: pa.Buffer, position: int) -> bool:
    """Whether there are only zeros where the next frame would begin."""
    return position + HEADER_BYTES > log.size or not any(
        log.slice(position, HEADER_BYTES).to_pybytes()
    )


def decode_header(log: pa.Buffer, position: int, store_seed: int) -> FrameHeader:
    """Read and verify the header at a position; InvalidFrameError when it is invalid."""
    raw = part_of(log, position, HEADER_BYTES).to_pybytes()
    if len(raw) < HEADER_BYTES or raw[:4] != MAGIC:
        raise InvalidFrameError("no frame begins here")
    if checksum(raw[:_CHECKED_BYTES], store_seed) != _UINT32.unpack_from(raw, _CHECKED_BYTES)[0]:
        raise InvalidFrameError("header checksum does not match")
    header = FrameHeader(*_FIELDS.unpack_from(raw, len(_BEGIN)))
    if raw[: len(_BEGIN)] != _BEGIN:
        flags = raw[len(MAGIC) : len(_BEGIN)].hex()
        raise FormatVersionError(
            f"commit {header.lsn} uses features of a newer format (flags {flags}); read the store "
            "with a newer kmq",
            lsn=header.lsn,
        )
    if position + header.length > log.size or header.body_position + TRAILER_BYTES > header.length:
        raise InvalidFrameError("the frame is longer than its file")
    return header


def read_directory(log: pa.Buffer, position: int, header: FrameHeader) -> bytes:
    """The directory of the frame at a position, once it and the trailer prove to be whole."""
    directory = proven_directory(log, position, header)
    trailer = log.slice(position + header.length - TRAILER_BYTES, TRAILER_BYTES).to_pybytes()
    if _UINT64.unpack(trailer)[0] != header.lsn ^ _MAGIC_WORD:
        raise InvalidFrameError("the frame's end was not written")
    return directory


def proven_directory(log: pa.Buffer, position: int, header: FrameHeader) -> bytes:
    """The directory of the frame at a position, once it proves to be whole."""
    directory: bytes = log.slice(position + HEADER_BYTES, header.directory_length).to_pybytes()
    if checksum(directory) != header.directory_checksum:
        raise InvalidFrameError("directory checksum does not match")
    return directory
