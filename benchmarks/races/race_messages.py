"""The messages of the messaging race: each follows from its name, producer and counter.

100 bytes: producer and counter, filler and the number of the topic or queue; a header with text,
and a property each of a whole number and a float.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage.format.records import HEADERS_TYPE, PROPERTIES_TYPE, PROPERTY_TYPE

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[np.int64]

BODY, TRACE, OFFSET, WEIGHT = 100, "TraceId", "PRO_OFFSET", "weight"
#: Every tenth of a hundred names is a queue.
NAMES = [f"QUEUE_{n // 10}" if n % 10 == 9 else f"TOPIC_{n - n // 10}" for n in range(100)]
_LABEL, _DIGITS, _HEAD = b"PRODUCER_%02d_", 10, BODY - 2
_POOL = np.frombuffer(np.random.default_rng(2017).bytes(76 << 12), np.uint8).reshape(-1, 76)
#: Ranges of counters of which something is kept.
_KEPT = 32
_FILLERS = [row.tobytes() for row in _POOL]


def heads(producer: int, counters: _Numbers) -> npt.NDArray[np.uint8]:
    """What the bodies of these messages begin with; the number of the name follows."""
    found = np.empty((len(counters), _HEAD), np.uint8)
    found[:, :12] = np.frombuffer(_LABEL % producer, np.uint8)
    found[:, 12:22] = _digits(counters)
    found[:, 22:] = _POOL[(counters * 31 + producer) % len(_POOL)]
    return found


def body(producer: int, counter: int, ending: bytes) -> bytes:
    """The body of one message, which ends with the number of its name."""
    filler = _FILLERS[(counter * 31 + producer) % len(_FILLERS)]
    return b"PRODUCER_%02d_%010d%b%b" % (producer, counter, filler, ending)


def tail(name: int) -> bytes:
    """What the bodies of messages to a topic or queue end with."""
    return b"%02d" % name


def trace(counter: int) -> str:
    """The header of a message."""
    return f"t{counter:010}"


def batch(name: int, producer: int, first: int, behind: int) -> pa.RecordBatch:
    """Messages with these counters in the columns that are sent.

    What does not follow from the name is made once: so the time of the race is the queue's.
    """
    bodies = np.empty((behind - first, BODY), np.uint8)
    bodies[:, :_HEAD] = _heads(producer, first, behind)
    bodies[:, _HEAD:] = np.frombuffer(tail(name), np.uint8)
    columns = [_fixed(bodies), *_extras(first, behind)]
    return pa.RecordBatch.from_arrays(columns, ["value", "headers", "properties"])


@lru_cache(maxsize=_KEPT)
def _heads(producer: int, first: int, behind: int) -> npt.NDArray[np.uint8]:
    return heads(producer, np.arange(first, behind))


@lru_cache(maxsize=_KEPT)
def _extras(first: int, behind: int) -> tuple[pa.Array, pa.Array]:
    counters = np.arange(first, behind)
    return _headers(counters), _properties(counters)


def whose(values: pa.Array) -> tuple[_Numbers, _Numbers]:
    """The producer and the counter of each message."""
    data = np.frombuffer(values.buffers()[2], np.uint8)[values.offset * BODY :]
    rows = data[: len(values) * BODY].reshape(-1, BODY)
    return _number(rows[:, 9:11]), _number(rows[:, 12:22])


def same(found: pa.RecordBatch, expected: pa.RecordBatch) -> bool:
    """Whether bodies, headers and properties are what was sent, field by field."""
    return found.column("value").equals(expected.column("value")) and all(
        _flat(found.column(name)) == _flat(expected.column(name))
        for name in ("headers", "properties")
    )


def _flat(column: pa.Array) -> list[pa.Array]:
    """How many entries each row has, and the fields of all of them."""
    if pa.types.is_map(column.type):
        bounds = column.offsets
        first, count = bounds[0].as_py(), bounds[-1].as_py() - bounds[0].as_py()
        items = column.items.slice(first, count).flatten()
        lengths = pc.subtract(bounds.slice(1), bounds.slice(0, len(column)))
        return [lengths, column.keys.slice(first, count), *items]
    return [pc.list_value_length(column), *column.flatten().flatten()]


def _fixed(rows: npt.NDArray[np.uint8]) -> pa.Array:
    bounds = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(rows), [None, pa.py_buffer(bounds), pa.py_buffer(rows)]
    )


def _headers(counters: _Numbers) -> pa.Array:
    rows = np.empty((len(counters), 1 + _DIGITS), np.uint8)
    rows[:, 0], rows[:, 1:] = ord("t"), _digits(counters)
    names = pc.take(pa.array([TRACE]), pa.array(np.zeros(len(rows), np.int32)))
    entries = pa.StructArray.from_arrays(
        [names, _fixed(rows)], fields=list(HEADERS_TYPE.value_type)
    )
    return pa.ListArray.from_arrays(_bounds(len(rows), 1), entries, type=HEADERS_TYPE)


def _properties(counters: _Numbers) -> pa.Array:
    count = 2 * len(counters)
    numbers = np.repeat(counters, 2)
    is_float = np.arange(count) % 2 == 1
    members = {
        "int": pa.array(numbers, mask=is_float),
        "float": pa.array(numbers * 0.5, mask=~is_float),
    }
    fields = list(PROPERTY_TYPE)
    columns = [members.get(field.name, pa.nulls(count, field.type)) for field in fields]
    names = pa.array([OFFSET, WEIGHT]).take(pa.array(is_float.astype(np.int32)))
    items = pa.StructArray.from_arrays(columns, fields=fields)
    return pa.MapArray.from_arrays(_bounds(len(counters), 2), names, items, PROPERTIES_TYPE)


@lru_cache(maxsize=8)
def _bounds(count: int, each: int) -> pa.Array:
    return pa.array(np.arange(0, count * each + 1, each, dtype=np.int32))


_FIVE = np.arange(10**5)[:, None] // 10 ** np.arange(4, -1, -1) % 10
#: The five digits of each number that has no more.
_DIGITS_OF = (_FIVE + ord("0")).astype(np.uint8)


def _digits(numbers: _Numbers) -> npt.NDArray[np.uint8]:
    halves = np.stack(np.divmod(numbers, len(_DIGITS_OF)), axis=1)
    found: npt.NDArray[np.uint8] = _DIGITS_OF[halves].reshape(len(numbers), _DIGITS)
    return found


def _number(digits: npt.NDArray[np.uint8]) -> _Numbers:
    found = np.zeros(len(digits), np.int64)
    for column in digits.T:
        found *= 10
        found += column - ord("0")
    return found
