"""Matching rows of stored batches by key, headers, properties and time.

Only these columns have to be read. `pyarrow.compute` is imported only when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Mask
from kmq_storage.format.plain_columns import flags_of, scalar
from kmq_storage.format.records import (
    HEADERS,
    KEY,
    PROPERTIES,
    PROPERTY_TYPE,
    column_of,
    timestamps_of,
)

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Pair:
    """A header or a property of a record."""

    name: str
    #: None for a header without a value.
    value: Any
    #: The type of a property: a member of `PROPERTY_TYPE`.
    member: str | None = None

    @property
    def path(self) -> list[int]:
        """The path to the value within an element of the column."""
        return [1] if self.member is None else [1, PROPERTY_TYPE.get_field_index(self.member)]


@dataclass(frozen=True, slots=True)
class WantedRecords:
    """Conditions for wanted records, all of which must hold; without any, every record matches."""

    key: bytes | None = None
    headers: tuple[Pair, ...] = ()
    properties: tuple[Pair, ...] = ()
    #: From this instant on, and before that one (UTC microseconds); None: at any time.
    since: int | None = None
    until: int | None = None

    @property
    def has_time(self) -> bool:
        """Whether the time matters."""
        return self.since is not None or self.until is not None

    def may_be_among(self, oldest: int, newest: int) -> bool:
        """Whether a record with a timestamp between these two, or of one, can be wanted."""
        is_late_enough = self.since is None or newest >= self.since
        return is_late_enough and (self.until is None or oldest < self.until)

    @property
    def needed(self) -> int:
        """The optional columns, as flags, that a batch must have to contain any match."""
        keyed = KEY if self.key is not None else 0
        return keyed | (HEADERS if self.headers else 0) | (PROPERTIES if self.properties else 0)

    def columns(self, *, typed: bool) -> frozenset[str]:
        """The names of the columns to read, in an untyped or a typed topic."""
        flags = {"key": KEY, "headers": HEADERS, "properties": PROPERTIES}
        names = [name for name, flag in flags.items() if flag & self.needed]
        prefix = "_" if typed else ""
        return frozenset(prefix + name for name in names + ["timestamp"] * self.has_time)

    def rows(self, batch: pa.RecordBatch) -> npt.NDArray[np.intp]:
        """The rows of a stored batch that match; the batch needs only the columns `columns`."""
        found = np.ones(batch.num_rows, np.bool_)
        for each in self._conditions(batch):
            found &= each
        return np.flatnonzero(found)

    def _conditions(self, batch: pa.RecordBatch) -> Iterator[Mask]:
        times = np.from_dlpack(timestamps_of(batch)) if self.has_time else None
        if times is not None and self.since is not None:
            yield times >= self.since
        if times is not None and self.until is not None:
            yield times < self.until
        if self.key is not None:
            yield _with_key(column_of(batch, "key"), self.key, batch.num_rows)
        for name, pairs in (("headers", self.headers), ("properties", self.properties)):
            for pair in pairs:
                yield _with_pair(column_of(batch, name), pair, batch.num_rows)


def _with_key(keys: pa.Array | None, key: bytes, rows: int) -> Mask:
    import pyarrow.compute as pc  # slow to import, and few need it

    if keys is None:
        return np.zeros(rows, np.bool_)
    return flags_of(pc.equal(keys, scalar(key)))


def _with_pair(column: pa.Array | None, pair: Pair, rows: int) -> Mask:
    """A mask of the rows with an element that has the name and value of a pair."""
    import pyarrow.compute as pc

    found = np.zeros(rows, np.bool_)
    if column is None or not rows:
        return found
    ends = np.from_dlpack(column.offsets)
    elements = column.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
    named = pc.equal(pc.struct_field(elements, [0]), scalar(pair.name))
    values = pc.struct_field(elements, pair.path)
    if pair.value is None:
        same = values.is_null()
    else:
        same = pc.equal(values, scalar(pair.value, values.type))
    at = np.flatnonzero(flags_of(named) & flags_of(same))
    found[np.searchsorted(ends - ends[0], at, "right") - 1] = True
    return found & flags_of(column.is_valid())
