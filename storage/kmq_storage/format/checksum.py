"""CRC-32C, the checksum of everything that kmq writes.

One algorithm per format version: a reader without an optional library must not be unable to
verify. CRC-32C is what Kafka uses, and Java has it built in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import pyarrow as pa
from awscrt import checksums

Bytes: TypeAlias = bytes | pa.Buffer


def checksum(data: Bytes, seed: int = 0) -> int:
    """The CRC-32C of bytes, continued from a seed; other threads run meanwhile."""
    return int(checksums.crc32c(data, seed))


def checksum_of(buffers: Iterable[Bytes]) -> int:
    """The CRC-32C of buffers that stand one after another."""
    found = 0
    for buffer in buffers:
        found = checksum(buffer, found)
    return found
