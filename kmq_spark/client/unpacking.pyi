from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa

class StoredExtras:
    def __init__(self, headers: pa.Array | None, properties: pa.Array | None) -> None: ...
    def headers(self, row: int) -> tuple[tuple[str, bytes | None], ...]: ...
    def header_names(self) -> set[str]: ...
    def add_headers(
        self,
        found: dict[str, Any],
        row: int,
        left_out: Collection[str],
        decode: Callable[[bytes], Any],
        unlike: bytes,
    ) -> None: ...
    def properties(self, row: int) -> dict[str, Any]: ...
