"""CRC-32C, the checksum of everything that kmq writes; and digests, for what is named after bytes.

One algorithm per format version: a reader without an optional library must not be unable to
verify. CRC-32C is what Kafka uses, and Java has it built in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeAlias

import pyarrow as pa

Bytes: TypeAlias = bytes | pa.Buffer


def checksum(data: Bytes, seed: int = 0) -> int:
    """The CRC-32C of bytes, continued from a seed; other threads run meanwhile."""
    return int(_crc32c()(data, seed))


@cache
def _crc32c() -> Callable[[Bytes, int], int]:
    # With its first use, since it takes 30 ms: `import kmq_spark` shall not.
    from awscrt.checksums import crc32c

    function: Callable[[Bytes, int], int] = crc32c
    return function


def checksum_of(buffers: Iterable[Bytes]) -> int:
    """The CRC-32C of buffers that stand one after another."""
    found = 0
    for buffer in buffers:
        found = checksum(buffer, found)
    return found


def digest_of(data: Bytes) -> bytes:
    """16 bytes that no other bytes have."""
    import hashlib  # slow to import, and few need it

    return hashlib.blake2b(data, digest_size=16).digest()
