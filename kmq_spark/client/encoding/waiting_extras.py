"""What records have beside key and value while they wait for their commit.

Packed into bytes by `compiled.packing` where it was compiled: the garbage collector does not follow
bytes, and they go into columns without an object for each name and value. Else as plain tuples, as
does what few records have, and what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kmq_spark.client import compiled
from kmq_spark.client.records.values import (
    Extras,
    Headers,
    PlainExtras,
    Properties,
    checked_extras,
    size_among,
)
from kmq_storage.format.schedule_entry import Schedule

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: The extras of one record, packed or not.
WaitingExtras = PlainExtras | bytes
_PARTITIONS = 2**31


def waiting_extras(
    headers: Headers | None,
    properties: Properties | None,
    partition: int | None = None,
    timestamp: datetime | None = None,
    *,
    schedule: Schedule | None = None,
    uniq: bytes = b"",
) -> WaitingExtras:
    """The checked parts of one record; InvalidRequestError names the one that is wrong."""
    if timestamp is None and schedule is None and not uniq:
        packed = packed_extras(headers, properties, partition)
        if packed is not None:
            return packed
    checked = checked_extras(headers, properties, partition, timestamp)
    return tuple(checked._replace(schedule=schedule, uniq=uniq))


def packed_extras(
    headers: object,
    properties: object,
    partition: int | None,
    *,
    left_out: Collection[str] | None = None,
    encode: Callable[[Any], bytes] | None = None,
    unlike: bytes = b"",
) -> bytes | None:
    """The same as bytes; None when they can't be packed, also because one of them is wrong.

    `left_out`: names of headers that are not packed. `encode`: returns the bytes of a header's
    value. Text that begins with none of the letters of `unlike` becomes UTF-8 without this call.
    """
    if not compiled.is_there:
        return None
    if partition is None:
        partition = -1
    elif type(partition) is not int or not 0 <= partition < _PARTITIONS:
        return None
    return compiled.packing.pack(headers, properties, partition, left_out, encode, unlike)


def plain_among(extras: Mapping[int, WaitingExtras]) -> dict[int, PlainExtras]:
    """The extras that aren't packed; only these may have a timestamp, a schedule or a `uniq`."""
    if _are_packed(extras):  # most often
        return {}
    return {row: each for row, each in extras.items() if not isinstance(each, bytes)}


def _are_packed(extras: Mapping[int, WaitingExtras]) -> bool:
    return {*map(type, extras.values())} <= {bytes}


def unpacked(extras: WaitingExtras) -> PlainExtras:
    """The same parts as a plain tuple."""
    if not isinstance(extras, bytes):
        return extras
    headers, properties, partition, size = compiled.packing.unpack(extras)
    return tuple(Extras(headers, properties, partition, size=size))


def packed_batch(
    values: Sequence[object],
    keys: Sequence[object],
    times: npt.NDArray[np.int64],
    extras: Mapping[int, WaitingExtras],
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], npt.NDArray[np.int32] | int | None] | None:
    """What compiled `packed_rows.batch` makes of rows; None when Python has to do it."""
    if not (compiled.is_there and _are_packed(extras)):
        return None
    nothing = compiled.packing.pack(None, None, -1)
    rows = map(extras.get, range(len(values)), repeat(nothing)) if extras else ()
    return compiled.packed_rows.batch(values, keys, times, list(rows))


def waiting_bytes(extras: WaitingExtras) -> int:
    """The bytes of a waiting record's headers and properties with names; a number counts as 8."""
    if isinstance(extras, bytes):
        return compiled.packing.packed_size(extras)
    return size_among(extras)
