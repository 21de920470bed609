"""The directory of a run: its queues in blocks, and a list of the blocks, behind the run's batches.

Blocks and list are Arrow messages with a checksum each, so one queue is found by reading the list
and one block, however many queues there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from kmq_storage.errors import CorruptionError
from kmq_storage.format.binary_columns import row_bounds
from kmq_storage.format.checksum import checksum
from kmq_storage.format.message_place import MessagePlace
from kmq_storage.format.queue_table import QueueTable, first_from
from kmq_storage.format.records import decode_batch

#: Queues of one block, and bytes of their names, at most: what a look-up reads.
_BLOCK_QUEUES = 4_096
_BLOCK_BYTES = 256 * 1024

_BLOCK = pa.schema([("name", pa.binary()), ("rows", pa.uint32())])
_LIST = pa.schema(
    [
        ("name", pa.binary()),
        ("row", pa.int64()),
        ("position", pa.int64()),
        ("length", pa.uint32()),
        ("checksum", pa.uint32()),
    ]
)


class DirectoryEncoder:
    """Makes the messages of a directory; knows where its list is when all are made."""

    def __init__(self, tables: Iterable[QueueTable]) -> None:
        self._tables = tables
        self.place = MessagePlace(0, 0, 0)

    def messages(self, position: int) -> Iterator[pa.Buffer]:
        """The messages, the first of which stands at this position of the file."""
        blocks: list[tuple[bytes, int, int, int, int]] = []
        for table in self._tables:
            for first, behind in _cuts(table.names):
                names = table.names.slice(first, behind - first)
                counts = np.diff(table.starts[first : behind + 1]).astype(np.uint32)
                message = _message([names, pa.array(counts)], _BLOCK)
                place = (position, message.size, checksum(message))
                blocks.append((names[0].as_py(), int(table.starts[first]), *place))
                yield message
                position += message.size
        columns = zip(*blocks, strict=True) if blocks else [()] * len(_LIST)
        message = _message(
            [pa.array(column, field.type) for column, field in zip(columns, _LIST, strict=True)],
            _LIST,
        )
        self.place = MessagePlace(position, message.size, checksum(message))
        yield message


def _message(columns: list[pa.Array], schema: pa.Schema) -> pa.Buffer:
    return pa.RecordBatch.from_arrays(columns, schema=schema).serialize()


def _cuts(names: pa.Array) -> Iterator[tuple[int, int]]:
    """Names that make a block each: first, and behind the last."""
    bounds = row_bounds(names)
    first = 0
    while first < len(names):
        full = int(bounds.searchsorted(bounds[first] + _BLOCK_BYTES, "right")) - 1
        behind = min(max(full, first + 1), first + _BLOCK_QUEUES, len(names))
        yield first, behind
        first = behind


class Directory:
    """The queues of a run, whose blocks are read when they are needed."""

    def __init__(self, message: pa.Buffer, place: MessagePlace, file: str, rows: int) -> None:
        self._file = file
        listed = decode_batch(message, _LIST, place.checksum, file)
        #: The first name of each block.
        self._firsts: list[bytes] = listed.column("name").to_pylist()
        numbers = (listed.column(name).to_pylist() for name in ("position", "length", "checksum"))
        self._places = [MessagePlace(*place) for place in zip(*numbers, strict=True)]
        #: The first row of each block, and the row behind the last one.
        self._rows: list[int] = [*listed.column("row").to_pylist(), rows]

    def __len__(self) -> int:
        return len(self._places)

    @property
    def first_row(self) -> int:
        """The first row that is a message."""
        return self._rows[0]

    def block_of(self, name: bytes) -> int:
        """The block that has a queue, if the run has it; -1 where it can't."""
        return bisect_right(self._firsts, name) - 1

    def blocks_of(self, names: pa.Array) -> Iterator[tuple[int, int, int]]:
        """The blocks that may have some of many names that ascend, each with the range of these."""
        at = first_from(names, self._firsts[0]) if self._firsts else len(names)
        while at < len(names):
            block = self.block_of(names[at].as_py())
            last = block + 1 == len(self)
            behind = len(names) if last else first_from(names, self._firsts[block + 1], at)
            yield block, at, behind
            at = behind

    def starts(self) -> list[tuple[bytes, int]]:
        """The first name and row of each block."""
        return list(zip(self._firsts, self._rows, strict=False))

    def blocks_between(self, first: int, behind: int) -> tuple[int, int]:
        """The blocks with any of some rows: first, and behind the last."""
        if first >= behind:
            return 0, 0
        return bisect_right(self._rows, first) - 1, bisect_left(self._rows, behind)

    def place(self, block: int) -> MessagePlace:
        """Where a block stands."""
        return self._places[block]

    def decoded(self, block: int, message: pa.Buffer) -> QueueTable:
        """The queues of a block; CorruptionError when its bytes changed."""
        batch = decode_batch(message, _BLOCK, self._places[block].checksum, self._file)
        starts = np.empty(batch.num_rows + 1, np.int64)
        starts[0] = self._rows[block]
        np.cumsum(batch.column("rows").to_numpy(), out=starts[1:], dtype=np.int64)
        starts[1:] += starts[0]
        if starts[-1] != self._rows[block + 1]:
            raise CorruptionError(f"the directory of {self._file} counts other rows than it has")
        return QueueTable(batch.column("name"), starts)

    def tables(self, read: Callable[[int], QueueTable]) -> Iterator[QueueTable]:
        """The queues of all blocks."""
        return (read(block) for block in range(len(self)))
