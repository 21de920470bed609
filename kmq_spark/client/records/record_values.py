"""From stored record batches to the records that consumers get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count, repeat
from typing import Any, NoReturn

import pyarrow as pa

from kmq_spark.client.records.plain_values import plain_values
from kmq_spark.client.records.record import Record
from kmq_spark.client.records.stored_extras import stored_extras
from kmq_storage.format.records import is_typed
from kmq_storage.format.typed import is_own
from kmq_storage.log.reading.few_records import FewRecords, Part


class _NoProperties(dict[str, Any]):
    """What all records without properties share: a dict as that of others, that stays empty."""

    def _stays_empty(self, *_given: Any, **_named: Any) -> NoReturn:
        raise TypeError("a record doesn't change: take dict(record.properties)")

    __setitem__ = __ior__ = setdefault = update = _stays_empty

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[()]]:
        return dict, ()


_NO_PROPERTIES: Mapping[str, Any] = _NoProperties()


def records_of(part: Part) -> list[Record]:
    """Records of a partition as values."""
    return list(map(Record, zip(*values_of(part), repeat(None))))


def values_of(part: Part) -> tuple[Iterable[Any], ...]:
    """The first eight values of each record, column by column; some columns have no end."""
    if isinstance(part, FewRecords):
        return _few_values(part)
    batch = part.batch
    columns = {field.name: batch.column(n) for n, field in enumerate(batch.schema)}
    typed = is_typed(batch.schema)
    prefix = "_" if typed else ""
    keys, headers, properties = (
        columns.get(prefix + name) for name in ("key", "headers", "properties")
    )
    extras, rows = stored_extras(headers, properties), range(batch.num_rows)
    return (
        repeat(part.topic),
        repeat(part.partition),
        part.offsets().tolist(),
        repeat(None) if keys is None else keys.to_pylist(),
        _typed_values(columns) if typed else columns["value"].to_pylist(),
        repeat(()) if headers is None else map(extras.headers, rows),
        repeat(_NO_PROPERTIES) if properties is None else map(extras.properties, rows),
        columns[f"{prefix}timestamp"].view(pa.int64()).to_pylist(),
    )


def _few_values(part: FewRecords) -> tuple[Iterable[Any], ...]:
    plain = part.plain
    return (
        repeat(part.topic),
        repeat(part.partition),
        count(part.offset),
        plain.keys or repeat(None),
        plain.values,
        repeat(()),
        repeat(_NO_PROPERTIES),
        plain.timestamps,
    )


def _typed_values(columns: dict[str, pa.Array]) -> list[dict[str, Any] | None]:
    """The values of records of a typed topic: dicts, None for a tombstone."""
    names = [name for name in columns if is_own(name)]
    members = zip(*(plain_values(columns[name]) for name in names), strict=True)
    values: list[dict[str, Any] | None] = [dict(zip(names, row, strict=True)) for row in members]
    if "_tombstone" in columns:
        gone = columns["_tombstone"].to_pylist()
        return [None if dead else row for dead, row in zip(gone, values, strict=True)]
    return values
