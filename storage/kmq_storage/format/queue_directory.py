"""The directory of a run: its queues in blocks, and a list of the blocks, behind the run's batches.

Each block and the list is an Arrow message with a checksum. A queue is found by reading the list
and one block, however many queues the run has. If queues begin anew in the run, a second list with
its own blocks names these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format.binary_columns import binary_column, row_bounds
from kmq_storage.format.checksum import checksum
from kmq_storage.format.message_place import MessagePlace
from kmq_storage.format.plain_columns import number_column, numbers_of
from kmq_storage.format.queue_table import Beginnings, QueueTable, first_from
from kmq_storage.format.records import decode_batch

if TYPE_CHECKING:
    import numpy.typing as npt

#: The most queues of one block, and bytes of their names. A look-up reads one block.
_BLOCK_QUEUES = 4_096
_BLOCK_BYTES = 256 * 1024

_BLOCK = pa.schema([("name", pa.binary()), ("rows", pa.uint32())])
_BEGINNINGS = pa.schema([("name", pa.binary()), ("index", pa.int64())])
_LIST = pa.schema(
    [
        ("name", pa.binary()),
        ("row", pa.int64()),
        ("position", pa.int64()),
        ("length", pa.uint32()),
        ("checksum", pa.uint32()),
    ]
)

Table = TypeVar("Table")
#: The names, the other column about each, and the first row.
_Block: TypeAlias = tuple[pa.Array, Any, int]


class DirectoryEncoder:
    """Makes the messages of a directory; `lists` is known when all messages are made."""

    def __init__(self, tables: Iterable[QueueTable], beginnings: Callable[[], Beginnings]) -> None:
        """Prepare a directory of these queues.

        `beginnings` returns the queues that begin anew. It is called only after the batches are
        made.
        """
        self._tables = tables
        self._beginnings = beginnings
        #: The list of all queues and, if some queues begin anew, the list of these.
        self.lists: tuple[MessagePlace, ...] = ()

    @property
    def end(self) -> int:
        """The position behind the last list."""
        return self.lists[-1].end

    def messages(self, position: int) -> Iterator[pa.Buffer]:
        """The messages; the first one starts at this position of the file."""
        yield from self._listed(position, map(_queue_blocks, self._tables), _BLOCK)
        beginnings = self._beginnings()
        if len(beginnings):
            yield from self._listed(self.end, [_beginning_blocks(beginnings)], _BEGINNINGS)

    def _listed(
        self, position: int, tables: Iterable[Iterator[_Block]], schema: pa.Schema
    ) -> Iterator[pa.Buffer]:
        """The blocks, then their list."""
        blocks: list[tuple[bytes, int, int, int, int]] = []
        for names, column, row in chain.from_iterable(tables):
            message = _message([names, number_column(column)], schema)
            blocks.append((names[0].as_py(), row, position, message.size, checksum(message)))
            yield message
            position += message.size
        names, *numbers = zip(*blocks, strict=True) if blocks else [()] * len(_LIST)
        kinds = [kind.to_pandas_dtype() for kind in _LIST.types[1:]]
        columns = map(number_column, map(np.array, numbers, kinds))
        message = _message([binary_column(names), *columns], _LIST)
        self.lists += (MessagePlace(position, message.size, checksum(message)),)
        yield message


def _queue_blocks(table: QueueTable) -> Iterator[_Block]:
    for first, behind in _cuts(table.names):
        counts = np.diff(table.starts[first : behind + 1]).astype(np.uint32)
        yield table.names.slice(first, behind - first), counts, int(table.starts[first])


def _beginning_blocks(beginnings: Beginnings) -> Iterator[_Block]:
    for first, behind in _cuts(beginnings.names):
        names = beginnings.names.slice(first, behind - first)
        yield names, beginnings.indexes[first:behind], first


def _message(columns: list[pa.Array], schema: pa.Schema) -> pa.Buffer:
    return pa.RecordBatch.from_arrays(columns, schema=schema).serialize()


def _cuts(names: pa.Array) -> Iterator[tuple[int, int]]:
    """The names of each block: the first, and the end (exclusive)."""
    bounds = row_bounds(names)
    first = 0
    while first < len(names):
        full = int(bounds.searchsorted(bounds[first] + _BLOCK_BYTES, "right")) - 1
        behind = min(max(full, first + 1), first + _BLOCK_QUEUES, len(names))
        yield first, behind
        first = behind


class Listed(ABC, Generic[Table]):
    """Blocks of ascending names, with a list that has the first name of each block."""

    def __init__(self, message: pa.Buffer, place: MessagePlace, file: str) -> None:
        self._file = file
        listed = decode_batch(message, _LIST, place.checksum, file)
        #: The first name of each block.
        self._firsts: list[bytes] = listed.column("name").to_pylist()
        numbers = (listed.column(name).to_pylist() for name in ("position", "length", "checksum"))
        self._places = [MessagePlace(*place) for place in zip(*numbers, strict=True)]
        #: The first row of each block.
        self._rows: list[int] = listed.column("row").to_pylist()

    def __len__(self) -> int:
        return len(self._places)

    def block_of(self, name: bytes) -> int:
        """The only block that can have this queue; -1 when the run can't have it."""
        return bisect_right(self._firsts, name) - 1

    def blocks_of(self, names: pa.Array) -> Iterator[tuple[int, int, int]]:
        """The blocks that may have some of these ascending names, each with its range of them."""
        at = first_from(names, self._firsts[0]) if self._firsts else len(names)
        while at < len(names):
            block = self.block_of(names[at].as_py())
            last = block + 1 == len(self)
            behind = len(names) if last else first_from(names, self._firsts[block + 1], at)
            yield block, at, behind
            at = behind

    def place(self, block: int) -> MessagePlace:
        """Where the message of a block is in the file."""
        return self._places[block]

    @abstractmethod
    def decoded(self, block: int, message: pa.Buffer) -> Table:
        """The decoded contents of a block; CorruptionError when its bytes changed."""

    def tables(self, read: Callable[[int], Table]) -> Iterator[Table]:
        """The decoded contents of all blocks."""
        return (read(block) for block in range(len(self)))

    def _batch(self, block: int, message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
        try:
            return decode_batch(message, schema, self._places[block].checksum, self._file)
        except FormatVersionError:
            raise
        except CorruptionError as error:
            behind = self._firsts[block + 1 : block + 2]
            named = f"{self._firsts[block]!r} on" + "".join(f", up to {name!r}" for name in behind)
            told = f"{error.message} in the directory of the queues from {named}"
            raise CorruptionError(told, **error.context) from error


class Directory(Listed[QueueTable]):
    """The queues of a run; a block is read only when it is needed."""

    def __init__(self, message: pa.Buffer, place: MessagePlace, file: str, rows: int) -> None:
        super().__init__(message, place, file)
        self._rows.append(rows)  # the row behind the last one

    @property
    def first_row(self) -> int:
        """The first row of the run that is a message."""
        return self._rows[0]

    def starts(self) -> list[tuple[bytes, int]]:
        """The first name and row of each block."""
        return list(zip(self._firsts, self._rows, strict=False))

    def blocks_between(self, first: int, behind: int) -> tuple[int, int]:
        """The blocks that have any of these rows: the first, and the end (exclusive)."""
        if first >= behind:
            return 0, 0
        return bisect_right(self._rows, first) - 1, bisect_left(self._rows, behind)

    def queue_of(self, row: int, read: Callable[[int], QueueTable]) -> bytes | None:
        """The queue of a row, from the decoded blocks; None for a row that is no message."""
        block = bisect_right(self._rows, row, hi=len(self)) - 1
        if block < 0:
            return None
        table = read(block)
        name: bytes = table.names[int(table.starts.searchsorted(row, "right")) - 1].as_py()
        return name

    def decoded(self, block: int, message: pa.Buffer) -> QueueTable:
        """The queues of a block."""
        batch = self._batch(block, message, _BLOCK)
        starts = np.empty(batch.num_rows + 1, np.int64)
        starts[0] = self._rows[block]
        np.cumsum(numbers_of(batch.column("rows")), out=starts[1:], dtype=np.int64)
        starts[1:] += starts[0]
        if starts[-1] != self._rows[block + 1]:
            raise CorruptionError(f"the directory of {self._file} counts other rows than it has")
        return QueueTable(batch.column("name"), _narrow(starts))


def _narrow(starts: Numbers) -> npt.NDArray[np.integer[Any]]:
    """Ascending rows, in 32 bits each if they fit; the rows of all queues stay in memory."""
    return starts.astype(np.int32) if starts[-1] <= np.iinfo(np.int32).max else starts


class BeginningList(Listed[Beginnings]):
    """The queues that begin anew in a run; a block is read only when it is needed."""

    def decoded(self, block: int, message: pa.Buffer) -> Beginnings:
        """The queues of a block."""
        batch = self._batch(block, message, _BEGINNINGS)
        return Beginnings(batch.column("name"), numbers_of(batch.column("index")))
