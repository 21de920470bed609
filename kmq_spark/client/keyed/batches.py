"""Batches of messages for keyed queues: checked columns in, indexes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_spark.client.keyed.values import wrong_length
from kmq_spark.errors import InvalidRequestError, NotFoundError, OffsetOutOfRangeError
from kmq_storage import limits
from kmq_storage.format.binary_columns import FEW, binary_column
from kmq_storage.numeric import whole

_COLUMNS = ("queue", "value")
_PLAIN = {bytes, str}
#: More than a queue can have; the sum with any number of messages still fits into 64 bits.
_INDEX_MAX = 1 << 62


def column_of(what: str, elements: Any) -> pa.Array | pa.ChunkedArray:
    """Return a sequence of bytes and text as a column; InvalidRequestError names what is wrong.

    A column of more than 2 GiB comes in several pieces.
    """
    if isinstance(elements, str | bytes | bytearray | AbstractSet | Mapping):
        raise InvalidRequestError(
            f"{what} must be a sequence with an element per message, not {type(elements).__name__}",
            field=what,
        )
    try:
        if isinstance(elements, pa.ChunkedArray):
            found = elements.cast(pa.binary())
            return found.combine_chunks() if found.nbytes < 2**31 else found
        if isinstance(elements, list) and len(elements) <= FEW and {*map(type, elements)} <= _PLAIN:
            return binary_column([x.encode() if isinstance(x, str) else x for x in elements])
        if isinstance(elements, np.ndarray):  # Arrow takes the first bytes of its text and numbers
            elements = elements.tolist()
        return pa.array(elements, pa.binary())
    except (pa.ArrowException, TypeError, UnicodeEncodeError) as error:
        raise InvalidRequestError(f"{what} must be bytes or text: {error}", field=what) from None


def checked_table(data: Any) -> pa.Table:
    """Return messages as a table with the columns `key` and `value`, or InvalidRequestError.

    It comes in as few pieces as columns of at most 2 GiB allow.
    """
    if not isinstance(data, pa.RecordBatch | pa.Table):
        raise InvalidRequestError(
            f"messages must be a pyarrow RecordBatch or Table, not {type(data).__name__}"
        )
    if sorted(data.schema.names) != sorted(_COLUMNS):
        raise InvalidRequestError(
            f"messages have the columns queue and value, not {', '.join(data.schema.names)}"
        )
    names, values = (_binary(name, data.column(name)) for name in _COLUMNS)
    whole = pa.table({"key": _checked_queue_names(names), "value": values}).combine_chunks()
    return pa.Table.from_batches(whole.to_batches(), whole.schema)


def asked_names(queues: Any) -> pa.Array:
    """Names of queues to be asked for at once; InvalidRequestError unless they can be."""
    names = _checked_queue_names(column_of("queues", queues))
    if isinstance(names, pa.ChunkedArray):  # more than an array can have
        raise InvalidRequestError(
            "the names of queues that are asked for together have at most 2 GiB: ask for fewer at "
            "a time",
            field="queues",
        )
    return names


def _checked_queue_names(names: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Names of queues; InvalidRequestError unless each can be one."""
    if names.null_count:
        raise InvalidRequestError("the name of a queue must be text or bytes, not None")
    if len(names):
        lengths = pc.min_max(pc.binary_length(names))
        shortest, longest = lengths["min"].as_py(), lengths["max"].as_py()
        if shortest < 1 or longest > limits.QUEUE_NAME_BYTES_MAX:
            raise wrong_length(longest if shortest else 0)
    return names


def checked_indexes(offsets: Any, count: int) -> Any:
    """Return an array with an index for each queue; InvalidRequestError for anything else.

    None becomes -1: the first that a queue has. Numbers of numpy are checked together.
    """
    if offsets is None:
        return np.full(count, -1)
    try:
        found = _numbers(offsets)
    except (TypeError, ValueError):
        found = np.array(-1)
    if found.dtype.kind not in "iu" or found.ndim > 1 or (found < 0).any():
        raise InvalidRequestError("offsets must be a whole number from 0, or one for each queue")
    if found.ndim and len(found) != count:
        raise InvalidRequestError(f"offsets has {len(found)} elements, queues has {count}")
    found = np.minimum(found.astype(np.uint64), np.uint64(_INDEX_MAX))
    return np.broadcast_to(found.astype(np.int64), count)


def _numbers(offsets: Any) -> Any:
    """Return offsets as an array; what is not of numpy is checked one by one.

    Numpy would turn True beside a number into 1, and a number beside 2**63 into a float.
    """
    found = np.asarray(offsets, object if isinstance(offsets, Sequence) else None)
    if found.dtype != object:
        return found if found.size else found.astype(np.int64)
    return np.array(np.frompyfunc(_index, 1, 1)(found), np.int64)


def _index(value: Any) -> int:
    """An index that 64 bits can have; -1 for what can be none."""
    number = whole(value)
    return -1 if number is None or number < 0 else min(number, _INDEX_MAX)


def _binary(name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    try:
        found = column.cast(pa.binary())
    except pa.ArrowException as error:
        raise InvalidRequestError(
            f"column {name!r} must be binary or text, of less than 2 GiB in one piece: {error}",
            column=name,
        ) from None
    if found.null_count:  # an encoded column may have nulls among its values only
        raise InvalidRequestError(f"column {name!r} has nulls", column=name)
    return found


class IndexSequence(Sequence[int]):
    """The indexes of the messages of a batch, computed when one is looked at."""

    def __init__(self, length: int, work_out: Callable[[int, int], list[int]]) -> None:
        """`work_out` gets the number of the first message, and that behind the last."""
        self._length = length
        #: None when all are known: it is dropped then, and the names of the queues with it.
        self._work_out: Callable[[int, int], list[int]] | None = work_out
        self._known: list[int] = []
        #: Whether some are not to be known any more: then each is worked out by itself.
        self._is_partial = False

    @property
    def _indexes(self) -> list[int]:
        work_out = self._work_out
        if work_out is not None:  # another thread may do the same
            self._known = work_out(0, self._length)
            self._work_out = None
        return self._known

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        work_out = self._work_out
        if work_out is None or not self._is_partial:
            try:
                return self._indexes[at]
            except (NotFoundError, OffsetOutOfRangeError):
                self._is_partial = True
        assert work_out is not None, "what is known raises no such error"
        wanted = range(self._length)[at]
        if isinstance(wanted, range):
            return [self[each] for each in wanted]
        return work_out(wanted, wanted + 1)[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and self._indexes == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._indexes)
