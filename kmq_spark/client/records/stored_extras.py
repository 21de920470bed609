"""Headers and properties of rows that were read, from their columns to values."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kmq_spark.client import compiled
from kmq_storage.format.plain_columns import flags_of, numbers_of

Pairs = tuple[tuple[str, Any], ...]


def stored_extras(headers: pa.Array | None, properties: pa.Array | None) -> StoredExtras:
    """Return those of some rows; compiled code makes their values only when asked for."""
    if not compiled.is_there:
        return StoredExtras(headers, properties)
    return compiled.unpacking.StoredExtras(headers, properties)


class StoredExtras:
    """The headers and properties of some rows; a column that is None has none."""

    def __init__(self, headers: pa.Array | None, properties: pa.Array | None) -> None:
        self._headers = [] if headers is None else _pairs_of(headers)
        self._properties = [] if properties is None else _pairs_of(properties)

    def headers(self, row: int) -> Pairs:
        """The names and values of a row's headers, in pairs."""
        return self._headers[row] if self._headers else ()

    def header_names(self) -> set[str]:
        """The names that headers of any row have."""
        return {name for pairs in self._headers for name, _ in pairs}

    def add_headers(
        self,
        found: dict[str, Any],
        row: int,
        left_out: Collection[str],
        decode: Callable[[bytes], Any],
        unlike: bytes,
    ) -> None:
        """Add those of a row's headers that have a value, decoded, to other headers.

        The compiled twin takes a value that begins with none of the letters of `unlike` for text,
        without a call of `decode`, which would say the same.
        """
        for name, data in self.headers(row):
            if data is not None and name not in left_out:
                found[name] = decode(data)

    def properties(self, row: int) -> dict[str, Any]:
        """The properties of a row."""
        return dict(self._properties[row] if self._properties else ())


def _pairs_of(column: pa.Array) -> list[Pairs]:
    """The names and values of each row of headers or properties."""
    if column.null_count == len(column):
        return [()] * len(column)
    bounds = numbers_of(column.offsets)
    first, count = bounds[0], bounds[-1] - bounds[0]
    if pa.types.is_map(column.type):
        names, values = column.keys.slice(first, count), _set(column.items.slice(first, count))
    else:
        names, content = column.values.slice(first, count).flatten()
        values = content.to_pylist()
    flat = list(zip(names.to_pylist(), values, strict=True))
    found = [tuple(flat[begin:end]) for begin, end in pairwise((bounds - first).tolist())]
    for row in np.flatnonzero(flags_of(column.is_null())) if column.null_count else ():
        found[row] = ()
    return found


def _set(values: pa.StructArray) -> list[Any]:
    """The member of each value that is set."""
    members = [member for member in values.flatten() if member.null_count < len(member)]
    found: list[Any] = members[0].to_pylist() if members else [None] * len(values)
    for member in members[1:]:
        rows = np.flatnonzero(flags_of(member.is_valid()))
        for row, value in zip(rows.tolist(), member.drop_null().to_pylist(), strict=True):
            found[row] = value
    return found
