"""Reading and changing positions in Arrow's own metadata, for which pyarrow has no functions.

A message in a file consists of 8 bytes, a flatbuffer and a body of buffers. A file's footer is a
flatbuffer, too. This module handles only what kmq needs: the positions of buffers in a body, and
of messages in a footer. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import types

from kmq_storage.format.checksum import Bytes

#: A file begins with its magic, filled up to this; the schema's message follows.
FILE_MAGIC_BYTES = 8
_PREFIX = 8
_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
_I64 = struct.Struct("<q")
_BUFFER = struct.Struct("<qq")
_BLOCK = struct.Struct("<qi4xq")
#: Which member of which table, by Arrow's Message.fbs and File.fbs.
_MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 2, 3
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3
_FOOTER_SCHEMA, _FOOTER_BATCHES = 1, 3
_SCHEMA_METADATA = 2
_PAIR_KEY, _PAIR_VALUE = 0, 1
#: A footer ends with its length and the magic.
_FOOTER_END = 10


def head_length(start: bytes) -> int:
    """The number of bytes before a message's body, from its first 8 bytes."""
    return _PREFIX + int.from_bytes(start[4:_PREFIX], "little")


def message_length(message: pa.Buffer) -> int:
    """The bytes of a record batch message without what follows it; 0 when that can't be told.

    Nothing is proven yet: the bytes may say anything.
    """
    length = head_length(message[:_PREFIX].to_pybytes())
    head = message[:length]
    try:
        place = _member(head, _root(head, _PREFIX), _MESSAGE_BODY_LENGTH)
        (body,) = _I64.unpack_from(head, place)
    except struct.error:
        return 0
    return length + body if body >= 0 and length + body <= message.size else 0


class MessageHead:
    """A record batch message up to its body, with the positions of the buffers."""

    def __init__(self, head: bytes) -> None:
        self._bytes = bytearray(head)
        message, batch = _message_and_batch(head)
        self._body_length = _member(head, message, _MESSAGE_BODY_LENGTH)
        self._buffers = _elements(head, _member(head, batch, _BATCH_BUFFERS))

    def buffers(self) -> list[tuple[int, int]]:
        """The position and length, without padding, of each buffer in the body."""
        first, count = self._buffers
        end = first + count * _BUFFER.size
        return list(_BUFFER.iter_unpack(memoryview(self._bytes)[first:end]))

    def placed(self, starts: Sequence[int], body_length: int) -> bytes:
        """The head for a body in which the buffers have other positions."""
        first, _ = self._buffers
        for index, start in enumerate(starts):
            _I64.pack_into(self._bytes, first + index * _BUFFER.size, start)
        _I64.pack_into(self._bytes, self._body_length, body_length)
        return bytes(self._bytes)


def is_compressed(message: pa.Buffer) -> bool:
    """Whether the buffers in the body of a record batch message are compressed."""
    _, batch = _message_and_batch(message)
    return bool(_member(message, batch, _BATCH_COMPRESSION))


def placed_footer(footer: bytes, messages: Sequence[tuple[int, int, int]]) -> bytes:
    """A file's footer and what follows, for messages at (position, bytes before body, of body)."""
    changed = bytearray(footer)
    first, count = _elements(footer, _member(footer, _footer_table(footer), _FOOTER_BATCHES))
    assert count == len(messages), "every message has its block"
    for index, message in enumerate(messages):
        _BLOCK.pack_into(changed, first + index * _BLOCK.size, *message)
    return bytes(changed)


def schema_text(footer: bytes, key: bytes) -> bytes | None:
    """The value of a key in the schema's metadata in a verified footer."""
    schema = _pointed_at(footer, _member(footer, _footer_table(footer), _FOOTER_SCHEMA))
    first, count = _elements(footer, _member(footer, schema, _SCHEMA_METADATA))
    for place in range(first, first + count * _U32.size, _U32.size):
        pair = _pointed_at(footer, place)
        if _text(footer, _member(footer, pair, _PAIR_KEY)) == key:
            return _text(footer, _member(footer, pair, _PAIR_VALUE))
    return None


def buffers_in(kind: pa.DataType) -> int:
    """The number of buffers of a column of this type, including those of its children."""
    own = 2
    if types.is_null(kind):
        own = 0
    elif types.is_struct(kind) or types.is_fixed_size_list(kind):
        own = 1
    elif _has_text(kind):
        own = 3
    return own + sum(buffers_in(child.type) for child in _children(kind))


def _has_text(kind: pa.DataType) -> bool:
    plain = types.is_string(kind) or types.is_binary(kind)
    return bool(plain or types.is_large_string(kind) or types.is_large_binary(kind))


def _children(kind: pa.DataType) -> Iterator[pa.Field]:
    if types.is_map(kind):
        yield pa.field("entries", pa.struct([kind.key_field, kind.item_field]))
    elif types.is_nested(kind):
        yield from (kind.field(index) for index in range(kind.num_fields))


def _message_and_batch(data: Bytes) -> tuple[int, int]:
    """The positions of a message's table and of its record batch's table."""
    message = _root(data, _PREFIX)
    return message, _pointed_at(data, _member(data, message, _MESSAGE_HEADER))


def _footer_table(footer: bytes) -> int:
    end = len(footer) - _FOOTER_END
    return _root(footer, end - int.from_bytes(footer[end : end + 4], "little"))


def _root(data: Bytes, start: int) -> int:
    return start + _number(_U32, data, start)


def _member(data: Bytes, table: int, index: int) -> int:
    """The position of a table's member; 0 if the table lacks it."""
    members = table - _number(_I32, data, table)
    slot = 4 + 2 * index
    if slot >= _number(_U16, data, members):
        return 0
    place = _number(_U16, data, members + slot)
    return table + place if place else 0


def _pointed_at(data: Bytes, place: int) -> int:
    return place + _number(_U32, data, place)


def _elements(data: Bytes, place: int) -> tuple[int, int]:
    """The position of a vector's elements, and their number."""
    if not place:
        return 0, 0
    vector = _pointed_at(data, place)
    return vector + 4, _number(_U32, data, vector)


def _text(data: bytes, place: int) -> bytes:
    first, length = _elements(data, place)
    return data[first : first + length]


def _number(form: struct.Struct, data: Bytes, place: int) -> int:
    number: int = form.unpack_from(data, place)[0]
    return number
