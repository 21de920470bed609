"""CRC-32C, the checksum of everything that kmq writes; and digests, for names made from contents.

There is one algorithm per format version, so that every reader can verify without an optional
library. Kafka uses CRC-32C too, and Java has it built in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeAlias

import pyarrow as pa

Bytes: TypeAlias = bytes | pa.Buffer


def checksum(data: Bytes, seed: int = 0) -> int:
    """The CRC-32C of bytes, continued from a seed; the GIL is released meanwhile."""
    return int(_crc32c()(data, seed))


@cache
def _crc32c() -> Callable[[Bytes, int], int]:
    # Imported at the first use: it takes 30 ms, which `import kmq_spark` must not.
    from awscrt.checksums import crc32c

    function: Callable[[Bytes, int], int] = crc32c
    return function


def checksum_of(buffers: Iterable[Bytes]) -> int:
    """The CRC-32C of buffers, one after another."""
    found = 0
    for buffer in buffers:
        found = checksum(buffer, found)
    return found


def digest_of(data: Bytes) -> bytes:
    """A digest of 16 bytes; different bytes have different digests."""
    import hashlib  # slow to import, and rarely needed

    return hashlib.blake2b(data, digest_size=16).digest()
