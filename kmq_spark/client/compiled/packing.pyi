from collections.abc import Callable, Collection
from typing import Any

def pack(
    headers: object,
    properties: object,
    partition: int,
    left_out: Collection[str] | None = None,
    encode: Callable[[Any], bytes] | None = None,
    unlike: bytes = b"",
) -> bytes | None: ...
def unpack(
    packed: bytes,
) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None, int | None, int]: ...
def packed_size(packed: bytes) -> int: ...
