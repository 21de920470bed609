"""Layouts: how to read a topic's stored batches of any schema version as the newest version.

A layout is made from a topic's definition alone, so an executor can read with it without the log.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from functools import lru_cache

import pyarrow as pa

from kmq_storage.errors import CorruptionError
from kmq_storage.format.records import OFFSET, SEALED, TYPED, stored_schema
from kmq_storage.format.typed import (
    SEALED_TYPED,
    is_own,
    stored_columns,
    typed_schema,
    version_of,
    versioned,
)
from kmq_storage.model import decode_schema

#: The order of kmq's columns; a topic's own columns follow the key.
_ORDER = ("_timestamp", "_key", "_headers", "_properties", "_tombstone", "_offset")
#: Columns that are always read, since they tell what a row is.
_ALWAYS = ("_timestamp", "_tombstone", "_offset")
#: The position of a segment's timestamps, which tell the number of rows if no column is wanted.
_ROWS = 1


class Layout:
    """The layout of a topic's stored batches; without schema versions, the topic is untyped."""

    def __init__(
        self,
        schemas: Sequence[str] = (),
        only: Collection[str] | None = None,
        *,
        tombstones: bool = False,
    ) -> None:
        versions = [decode_schema(schema) for schema in schemas]
        #: The newest own columns, as readers get them; None for an untyped topic.
        self.schema = _readable(versions[-1], tombstones=tombstones) if versions else None
        #: Grows with every change of the columns that readers get.
        self.rank = (len(versions), tombstones)
        #: The own columns of each version in stored types.
        self._versions = [stored_columns(version) for version in versions]
        self._only = None if only is None else frozenset(only)
        self._schemas: dict[int, pa.Schema] = {}
        self._wanted: dict[tuple[int, bool], tuple[int, ...]] = {}
        #: The schema of the last batch that `current` returned unchanged.
        self._as_it_is = pa.schema([])
        #: The newest own columns that are read.
        self._current = [f for f in (self._versions or [()])[-1] if self._is_read(f.name)]

    def stored(self, columns: int, where: str) -> pa.Schema:
        """The schema of a stored batch; CorruptionError when no definition has its version."""
        if not columns & TYPED:
            return stored_schema(columns)
        found = self._schemas.get(columns)
        if found is None:
            version = version_of(columns)
            if not 1 <= version <= len(self._versions):
                raise CorruptionError(
                    f"record batch has version {version} of its topic's schema, which has "
                    f"{len(self._versions)}: {where}"
                )
            own = self._versions[version - 1]
            found = self._schemas[columns] = typed_schema(own, columns)
        return found

    def wanted(self, columns: int, where: str, *, dense: bool) -> tuple[int, ...] | None:
        """The positions of the columns of a stored batch that have to be read; None for all.

        The offsets of a dense batch are not read, as they follow from the first.
        """
        if self._only is None:
            return None
        found = self._wanted.get((columns, dense))
        if found is None:
            names = enumerate(self.stored(columns, where).names)
            sealed = bool(columns & OFFSET)
            chosen = [at for at, name in names if self._is_needed(name, dense=dense, sealed=sealed)]
            found = tuple(chosen or [_ROWS])
            self._wanted[columns, dense] = found
        return found

    def current(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A stored batch of any version, converted to the newest version and the wanted columns.

        Columns that were added later are null. Columns that need no change are not copied.
        """
        if not self._versions or batch.schema.equals(self._as_it_is):
            return batch
        schema = self._read(batch.schema)
        if schema.equals(batch.schema):
            self._as_it_is = schema
            return batch
        arrays = [_column(batch, field) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _read(self, stored: pa.Schema) -> pa.Schema:
        """The schema that `current` returns for a batch with this stored schema."""
        added = [f for f in stored if not is_own(f.name) and self._is_read(f.name)]
        added.sort(key=lambda field: _ORDER.index(field.name))
        first = [field for field in added if field.name in _ORDER[:2]]
        return pa.schema([*first, *self._current, *added[len(first) :]])

    def empty(self) -> pa.RecordBatch:
        """An empty batch with the columns that `current` always returns."""
        schema = typed_schema(self._current, TYPED) if self._versions else stored_schema(0)
        return pa.RecordBatch.from_pylist([], schema)

    def knowing(self, newer: Layout) -> Layout:
        """This layout, which also reads batches of newer versions.

        Records that existed before are read exactly under both.
        """
        if len(newer._versions) <= len(self._versions):
            return self
        grown = copy(self)
        grown._versions, grown._schemas, grown._wanted = newer._versions, {}, {}
        return grown

    @property
    def is_partial(self) -> bool:
        """Whether some columns are not wanted."""
        return self._only is not None

    @property
    def sealed_columns(self) -> int:
        """The flags of the batches in a segment that is sealed now."""
        return self.sealed[0]

    @property
    def sealed(self) -> list[int]:
        """The flags of batches in segments of all versions, the newest first."""
        versions = range(len(self._versions), 0, -1)
        return [versioned(SEALED_TYPED, version) for version in versions] or [SEALED]

    def _is_needed(self, name: str, *, dense: bool, sealed: bool) -> bool:
        if name == ("_offset" if self._versions else "offset"):
            return not dense
        if name == "_timestamp" and sealed:  # in unsealed batches, it tells that they are typed
            return name in (self._only or ())
        return self._is_read(name)

    def _is_read(self, name: str) -> bool:
        return self._only is None or name in self._only or name in _ALWAYS


def _readable(declared: pa.Schema, *, tombstones: bool) -> pa.Schema:
    """A schema with nullable columns, since a record without a value has none of them."""
    if not tombstones:
        return declared
    fields = [field.with_nullable(True) for field in declared]
    return pa.schema(fields, metadata=declared.metadata)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    position = batch.schema.get_field_index(field.name)
    if position < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(position)
    return column if column.type == field.type else column.cast(field.type)


UNTYPED = Layout()


@lru_cache(maxsize=256)
def layout_of(
    schemas: tuple[str, ...], only: frozenset[str] | None = None, *, tombstones: bool = False
) -> Layout:
    """The layout of a topic with these versions of its schema; `only` some columns are wanted.

    With `tombstones` readers get every column as one that can be null.
    """
    if not schemas and only is None:
        return UNTYPED
    return Layout(schemas, only, tombstones=tombstones)
