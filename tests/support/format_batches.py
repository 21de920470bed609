"""Record batches and segments, read as storage/FORMAT.md describes them (sections 5 and 6.1).

See `format_reader.py`. This module imports nothing of kmq either.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from awscrt.checksums import crc32c

# Section 4.1: bits of `columns`.
HAS_KEY, HAS_HEADERS, HAS_PROPERTIES, HAS_OFFSET, IS_TYPED = 1, 2, 4, 8, 16
HAS_TOMBSTONE = 0x8000

# Section 5: types of columns.
TIMESTAMP = pa.timestamp("us", "UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
VALUE_OF_PROPERTY = pa.struct(
    [
        ("int", pa.int64()),
        ("float", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("bool", pa.bool_()),
    ]
)
PROPERTIES = pa.map_(pa.string(), VALUE_OF_PROPERTY)

ROWS_OF_A_BATCH_MAX = 65536

Fields = list[tuple[str, pa.DataType]]


class RefusedError(Exception):
    """What FORMAT.md does not describe, or what does not prove itself."""


def require(condition: bool, otherwise: str) -> None:
    """Refuse the store unless this is so."""
    if not condition:
        raise RefusedError(otherwise)


def schemas_of(settings: dict[str, Any]) -> list[pa.Schema]:
    """The versions of a typed topic's schema (section 4.3); none of any other topic."""
    messages = [base64.b64decode(each) for each in settings.get("schemas", [])]
    return [pa.ipc.read_schema(pa.py_buffer(message)) for message in messages]


def batch_schema(columns: int, versions: Sequence[pa.Schema]) -> pa.Schema:
    """The schema that a batch with these `columns` has (section 5)."""
    if columns & IS_TYPED:
        return pa.schema(_typed_fields(columns, versions[(columns >> 5 & 0x1FF) - 1]))
    fields: list[tuple[bool | int, str, pa.DataType]] = [
        (columns & HAS_OFFSET, "offset", pa.int64()),
        (True, "timestamp", TIMESTAMP),
        (columns & HAS_KEY, "key", pa.binary()),
        (True, "value", pa.binary()),
        (columns & HAS_HEADERS, "headers", HEADERS),
        (columns & HAS_PROPERTIES, "properties", PROPERTIES),
    ]
    return pa.schema([(name, type_) for present, name, type_ in fields if present])


def _typed_fields(columns: int, declared: pa.Schema) -> Fields:
    """Section 5.1."""
    own: Fields = [(field.name, stored_type(field.type)) for field in declared]
    before: Fields = [("_timestamp", TIMESTAMP), ("_key", pa.binary())]
    behind: Fields = [
        ("_headers", HEADERS),
        ("_properties", PROPERTIES),
        ("_tombstone", pa.bool_()),
    ]
    if columns & HAS_OFFSET:
        return [*own, ("_offset", pa.int64()), *before, *behind]
    present = (columns & HAS_HEADERS, columns & HAS_PROPERTIES, columns & HAS_TOMBSTONE)
    return [
        *before[: 2 if columns & HAS_KEY else 1],
        *own,
        *(field for field, is_there in zip(behind, present, strict=True) if is_there),
    ]


def stored_type(declared: pa.DataType) -> pa.DataType:
    """The type in which a typed topic's own column is stored (section 5.1)."""
    if pa.types.is_dictionary(declared):
        return stored_type(declared.value_type)
    if declared == pa.string_view():
        return pa.string()
    if declared == pa.binary_view():
        return pa.binary()
    if pa.types.is_list(declared):
        return pa.list_(stored_type(declared.value_type))
    if pa.types.is_struct(declared):
        return pa.struct([(field.name, stored_type(field.type)) for field in declared])
    if pa.types.is_map(declared):
        return pa.map_(stored_type(declared.key_type), stored_type(declared.item_type))
    return declared


def read_rows(message: bytes, checksum: int, schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows of a record batch message (section 5)."""
    require(crc32c(message) == checksum, "the CRC of a record batch")
    return pa.ipc.read_record_batch(pa.py_buffer(message), schema).to_pylist()


class SegmentBatch(NamedTuple):
    """What `kmq.batches` says of one batch (section 6.1)."""

    base: int
    end: int
    rows: int
    position: int
    length: int
    checksum: int
    lowest_timestamp: int
    highest_timestamp: int
    size: int


BATCH = struct.Struct("<QQIQIIqqQ")
PART = struct.Struct("<II")


def segment_rows(
    segment: bytes, file_id: bytes, footer_at: int, schema: pa.Schema
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each record of a segment, with its offset."""
    head_checksum, batches, parts = _batches_text(segment[footer_at:], file_id)
    if batches:  # else the head ends where the directory of a run begins, which isn't read here
        head = segment[: batches[0].position]
        require(crc32c(head) == head_checksum, "the CRC of a segment's head")
    for number, batch in enumerate(batches):
        message = segment[batch.position : batch.position + batch.length]
        rows = read_rows(message, batch.checksum, schema)
        require(len(rows) == batch.rows <= ROWS_OF_A_BATCH_MAX, "the rows of a segment's batch")
        width = PART.size * (1 + len(schema))
        if parts:
            _prove_parts(message, parts[number * width : (number + 1) * width])
        for row in rows:
            yield row["_offset" if "_offset" in row else "offset"], row


def _batches_text(footer: bytes, file_id: bytes) -> tuple[int, list[SegmentBatch], bytes]:
    """`kmq.batches`, found by the file's id: the CRC of the head, the batches, their parts."""
    text = rb"%s:([0-9a-f]{8}):([0-9a-f]*)(?::([0-9a-f]*))?" % file_id.hex().encode()
    found = re.findall(text, footer)
    require(len(found) == 1, "the footer of a segment names its file once")
    head_checksum, batches, parts = (bytes.fromhex(digits.decode()) for digits in found[0])
    return (
        int.from_bytes(head_checksum, "big"),
        [SegmentBatch(*each) for each in BATCH.iter_unpack(batches)],
        parts,
    )


def _prove_parts(message: bytes, parts: bytes) -> None:
    begin, checksum = 0, 0
    for end, expected in PART.iter_unpack(parts):
        checksum = crc32c(message[begin:end], checksum)
        require(checksum == expected, "the CRC of a part")
        begin = end
    require(begin == len(message), "the parts of a batch cover it")
