"""From what users hand in to rows in the stored Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kmq_spark.client.encoding.arrow_extras import (
    check_headers,
    check_properties,
    headers_column,
    properties_column,
    sizes_of,
    with_typed_values,
)
from kmq_spark.client.encoding.routing import Rows
from kmq_spark.client.encoding.waiting_extras import WaitingExtras, packed_batch, unpacked
from kmq_spark.client.records.values import Extras
from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.binary_columns import binary_column, row_bounds
from kmq_storage.format.plain_columns import number_column, numbers_of, scalar
from kmq_storage.format.records import HEADERS_TYPE, PROPERTIES_TYPE, TIMESTAMP_TYPE
from kmq_storage.names import nearest

if TYPE_CHECKING:
    import numpy.typing as npt

#: The years 1 to 9999, UTC microseconds.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999

_ARROW_COLUMNS = ("value", "key", "partition", "timestamp", "headers", "properties")
_TARGETS = {
    "value": pa.binary(),
    "key": pa.binary(),
    "partition": pa.int32(),
    "timestamp": TIMESTAMP_TYPE,
    "headers": HEADERS_TYPE,
    "properties": PROPERTIES_TYPE,
}


def rows_of_columns(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None],
    timestamps: npt.NDArray[np.int64],
    extras: Mapping[int, WaitingExtras],
) -> Rows:
    """Rows from parallel lists; timestamps are UTC microseconds, extras go by row."""
    made = packed_batch(values, keys, timestamps, extras)
    if made is not None:
        return Rows(*made)
    count = len(values)
    columns = {"value": binary_column(values)}
    key_column = binary_column(keys)
    if key_column.null_count < count:
        columns["key"] = key_column
    sizes = sum(binary_lengths(column) for column in columns.values())
    chosen = None
    if extras:
        chosen = with_extras(columns, timestamps, sizes, extras)
    columns["timestamp"] = number_column(timestamps).view(TIMESTAMP_TYPE)
    return Rows(_stored_batch(columns), np.asarray(sizes), chosen)


def with_extras(
    columns: dict[str, pa.Array],
    timestamps: npt.NDArray[np.int64],
    sizes: Any,
    extras: Mapping[int, WaitingExtras],
) -> npt.NDArray[np.int32] | None:
    """Fill in what some rows have; the chosen partitions, if there are any."""
    count, plain = len(timestamps), {row: unpacked(each) for row, each in extras.items()}
    rows = map(plain.get, range(count), repeat(tuple(Extras())))
    headers, properties, partitions, times, bytes_more, *_ = zip(*rows, strict=True)
    sizes += bytes_more
    if times.count(None) < count:
        chosen = [row for row, time in enumerate(times) if time is not None]
        timestamps[chosen] = [times[row] for row in chosen]
    if headers.count(None) < count:
        columns["headers"] = headers_column(headers)
    if properties.count(None) < count:
        columns["properties"] = properties_column(properties)
    if partitions.count(None) == count:
        return None
    return np.array([-1 if n is None else n for n in partitions], np.int32)


def _stored_batch(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    order = ("timestamp", "key", "value", "headers", "properties")
    present = {name: columns[name] for name in order if name in columns}
    return pa.RecordBatch.from_arrays(list(present.values()), names=list(present))


def binary_lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """The bytes of every row of a binary column; 0 for a null."""
    return np.diff(row_bounds(column)).astype(np.int64)


def check_arrow_columns(schema: pa.Schema) -> None:
    """InvalidRequestError unless a plain topic can take these columns."""
    for name in schema.names:
        if name not in _ARROW_COLUMNS:
            raise InvalidRequestError(
                f"column {name!r} is unknown{nearest(name, _ARROW_COLUMNS)}; "
                f"known are {', '.join(_ARROW_COLUMNS)}",
                column=name,
            )
    if len(set(schema.names)) < len(schema.names):
        raise InvalidRequestError(f"columns are named twice: {schema.names}")
    if "value" not in schema.names:
        raise InvalidRequestError("column 'value' is missing", column="value")


def in_stored_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same columns in the stored types; InvalidRequestError names one that has no such type."""
    names = batch.schema.names
    return pa.RecordBatch.from_arrays(
        [cast_column(name, batch.column(name)) for name in names], names
    )


def rows_of_arrow(batch: pa.RecordBatch, now: int, partition: int | None) -> Rows:
    """Rows from a checked Arrow batch; those without timestamp get `now` (UTC microseconds).

    Those without a partition of their own go to `partition`, if it is given.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in ("key", "headers", "properties"):
        if name in columns and columns[name].null_count == batch.num_rows:
            del columns[name]
    partitions = columns.pop("partition", None)
    columns["timestamp"] = filled_timestamps(columns.get("timestamp"), batch.num_rows, now)
    sizes = sum(
        binary_lengths(column) if name in ("key", "value") else sizes_of(column)
        for name, column in columns.items()
        if name != "timestamp"
    )
    chosen = chosen_partitions(partitions, -1 if partition is None else partition, batch.num_rows)
    return Rows(_stored_batch(columns), np.asarray(sizes), chosen)


def cast_column(name: str, column: pa.Array) -> pa.Array:
    """A column that is not a topic's own, in its stored type; typed topics put `_` before names."""
    plain = name.removeprefix("_")
    target = _TARGETS[plain]
    if column.type == target:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), target)
    if plain == "timestamp" and getattr(column.type, "tz", None) is None:
        raise InvalidRequestError(
            f"column {name!r} of type {column.type} must be instants with a time zone",
            column=name,
        )
    if plain == "partition" and not pa.types.is_integer(column.type):
        raise InvalidRequestError(
            f"column {name!r} of type {column.type} must be whole numbers", column=name
        )
    if plain == "properties" and pa.types.is_map(column.type):
        column = with_typed_values(column)
    try:
        return column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"column {name!r} of type {column.type} is not {target}: {error}", column=name
        ) from error


def chosen_partitions(
    partitions: pa.Array | None, default: int, count: int
) -> npt.NDArray[np.int32] | None:
    """The partitions that were chosen, the default where none was; None when nothing was."""
    if partitions is None or partitions.null_count == count:
        return None if default < 0 else np.full(count, default, np.int32)
    filled: npt.NDArray[np.int32] = numbers_of(
        partitions.fill_null(scalar(default, partitions.type))
    )
    return filled


def check_added(columns: Mapping[str, pa.Array], prefix: str = "") -> None:
    """InvalidRequestError, naming the column, for what no topic takes beside its values."""
    checks: dict[str, Callable[[pa.Array, str], None]] = {
        "headers": check_headers,
        "properties": check_properties,
        "partition": _check_partitions,
        "timestamp": _check_instants,
    }
    for plain, check in checks.items():
        if (name := f"{prefix}{plain}") in columns:
            check(columns[name], name)


def _check_partitions(column: pa.Array, name: str) -> None:
    if (numbers_of(column.fill_null(scalar(0, column.type))) < 0).any():
        raise InvalidRequestError(f"column {name!r} holds a negative number", column=name)


def _check_instants(column: pa.Array, name: str) -> None:
    """InvalidRequestError for an instant that no datetime of Python's can hold."""
    instants = numbers_of(column.view(pa.int64()).fill_null(scalar(0)))
    if len(instants) and not (instants.min() >= _FIRST_US and instants.max() <= _LAST_US):
        raise InvalidRequestError(
            f"column {name!r} holds an instant outside the years 1 to 9999", column=name
        )


def filled_timestamps(column: pa.Array | None, count: int, now: int) -> pa.Array:
    """The timestamps of all rows, `now` (UTC microseconds) where there are none."""
    if column is None:  # a fifth of the time that pa.repeat takes
        return number_column(np.full(count, now, np.int64)).view(TIMESTAMP_TYPE)
    return column.fill_null(scalar(now, TIMESTAMP_TYPE)) if column.null_count else column
