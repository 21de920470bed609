"""CRC-32C, the checksum of everything that kmq writes.

One algorithm per format version: a reader without an optional library must not be unable to
verify. CRC-32C is what Kafka uses, and Java has it built in.
"""

from __future__ import annotations

import google_crc32c
import pyarrow as pa


def checksum(data: bytes | pa.Buffer, seed: int = 0) -> int:
    """The CRC-32C of bytes, continued from a seed."""
    return int(google_crc32c.extend(seed, data))
