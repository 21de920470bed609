"""The messages of keyed queues that were lost with a gap's offsets, as its entry has them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_HEAD = struct.Struct("<QII")


class LostMessages(NamedTuple):
    """Messages of one queue at the indexes [first, behind), as they were before the repair."""

    queue: bytes
    first: int
    behind: int


def encoded(lost: Iterable[LostMessages]) -> bytes:
    """The binary form, which has no queue twice."""
    return b"".join(
        _HEAD.pack(first, behind - first, len(queue)) + queue for queue, first, behind in lost
    )


def decoded(data: bytes) -> Iterator[LostMessages]:
    """The messages of a binary form."""
    at = 0
    while at < len(data):
        first, count, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size + length
        yield LostMessages(data[at - length : at], first, first + count)
