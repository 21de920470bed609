"""The format of the manifest: leaf pages of rows, and the table of pages in a checkpoint's root.

A row tells where the records of one partition with offsets in [base, end) are stored. Rows are
sorted by topic id, partition and base offset through all pages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from kmq_storage import paths
from kmq_storage.arrays import Array, Mask, Numbers
from kmq_storage.cached import cached_property
from kmq_storage.errors import CorruptionError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.plain_columns import fixed_batch
from kmq_storage.format.records import COMPACTED, RUN, TYPED, is_run
from kmq_storage.model import Chunk, Location, Place, Segment

if TYPE_CHECKING:
    import numpy.typing as npt

#: What a row refers to: a frame of the log, a staged file, or a segment.
LOG, STAGED, SEGMENT = 0, 1, 2

#: The bytes of a record in memory besides its contents: its offset, its timestamp, and the ends of
#: its key, value, headers and properties.
_ROW_BYTES = 64

#: A partition: the id of its topic, and its number.
Key: TypeAlias = tuple[bytes, int]

ROW_SCHEMA = pa.schema(
    [
        ("topic_id", pa.binary(16)),
        ("partition", pa.uint32()),
        ("base_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("rows", pa.int64()),
        ("kind", pa.uint8()),
        #: The first LSN of the log file, or the id of the staged file or segment.
        ("file", pa.binary(16)),
        #: The position and length of the Arrow message, or of a segment's footer.
        ("position", pa.int64()),
        ("length", pa.int64()),
        ("checksum", pa.uint32()),
        ("columns", pa.uint16()),
        ("min_timestamp", pa.int64()),
        ("max_timestamp", pa.int64()),
        #: When the newest of the records was committed, UTC microseconds.
        ("time", pa.int64()),
        ("size", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Row:
    """Where the records of one partition with offsets in [base, end) are stored."""

    base_offset: int
    end_offset: int
    rows: int
    kind: int
    file: bytes
    position: int
    length: int
    checksum: int
    columns: int
    min_timestamp: int
    max_timestamp: int
    time: int
    size: int

    def place(self, key: Key) -> Place:
        """The row as a place, for a reader."""
        location = Location(self.path(key), self.position, self.length)
        build = Segment if self.kind == SEGMENT else Chunk
        return build(
            self.base_offset,
            self.end_offset,
            self.rows,
            location,
            self.checksum,
            self.columns & ~COMPACTED,
            self.min_timestamp,
            self.max_timestamp,
            self.size,
        )

    def path(self, key: Key) -> str:
        """The file that the row refers to."""
        if self.kind == SEGMENT:
            return paths.segment_file(*key, self.base_offset, self.file)
        if self.kind == STAGED:
            return paths.staged_file(self.file)
        return paths.log_file(int.from_bytes(self.file, "little"))

    def held_from(self, start: int) -> tuple[int, int]:
        """The number and bytes of records at or after an offset; in proportion within the row."""
        whole = self.end_offset - self.base_offset
        left = self.end_offset - max(self.base_offset, start)
        if left <= 0:
            return 0, 0
        return self.rows * left // whole, self.size * left // whole

    @property
    def weight(self) -> int:
        """About the bytes of the records in a segment before compression."""
        return weight_in_memory(self.size, self.rows)

    @property
    def dense(self) -> bool:
        """Whether every offset has its record."""
        return self.rows == self.end_offset - self.base_offset

    @property
    def compacted(self) -> bool:
        """Whether its keys were compacted."""
        return bool(self.columns & COMPACTED)

    @property
    def in_run(self) -> bool:
        """Whether the records are in a run, which is sorted by queue."""
        return self.kind == SEGMENT and is_run(self.columns)

    @property
    def bytes(self) -> int:
        """About the bytes that have to be read for the row."""
        return self.length + (self.position if self.kind == SEGMENT else 0)


_Number = TypeVar("_Number", int, "Numbers")


def weight_in_memory(size: _Number, rows: _Number) -> _Number:
    """About the bytes that records of this total size take in Arrow's memory."""
    return size + _ROW_BYTES * rows


weight_of = attrgetter("weight")

#: The values of a row in the order of its fields.
RowValues = tuple[Any, ...]
row_values: Callable[[Row], RowValues] = attrgetter(*Row.__slots__)


def log_file_id(first_lsn: int) -> bytes:
    """The `file` of a row whose records are inside a frame of this log file."""
    return first_lsn.to_bytes(16, "little")


class Rows(ABC):
    """Rows as columns of numbers."""

    @abstractmethod
    def column(self, name: str) -> Array:
        """A column of numbers, one for each row."""

    @property
    def kind(self) -> npt.NDArray[np.uint8]:
        """The `Row.kind` of each row."""
        return self.column("kind")

    @property
    def time(self) -> Numbers:
        """The `Row.time` of each row."""
        return self.column("time")

    @cached_property
    def weight(self) -> Numbers:
        """The `Row.weight` of each row."""
        return weight_in_memory(self.column("size"), self.column("rows"))

    @property
    def compacted(self) -> Mask:
        """The `Row.compacted` of each row."""
        marks: Mask = self.column("columns") & COMPACTED != 0
        return marks

    @property
    def in_run(self) -> Mask:
        """The `Row.in_run` of each row."""
        columns = self.column("columns")
        runs: Mask = (self.kind == SEGMENT) & (columns & (RUN | TYPED) == RUN)
        return runs

    @cached_property
    def bases(self) -> Numbers:
        """The base offsets of all rows."""
        return self.column("base_offset")

    @cached_property
    def ends(self) -> Numbers:
        """The end offsets of all rows."""
        return self.column("end_offset")

    @cached_property
    def bytes(self) -> Numbers:
        """The `Row.bytes` of each row."""
        footers = self.kind == SEGMENT
        read: Numbers = self.column("length") + self.column("position") * footers
        return read


class Page(Rows):
    """A leaf page: its rows as columns, and which of them belong to which partition."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        #: The rows, with the columns of ROW_SCHEMA.
        self.batch = batch

    def column(self, name: str) -> Array:
        """See `Rows.column`."""
        # `to_numpy` would import pandas, which takes longer than planning a whole page.
        return np.from_dlpack(self.batch.column(name))

    def file_words(self) -> npt.NDArray[np.uint64]:
        """The first 8 bytes of the `file` of each row."""
        words = np.frombuffer(self.batch.column("file").buffers()[1], np.uint64)
        return words.reshape(-1, 2)[: self.batch.num_rows, 0]

    def _ids(self) -> npt.NDArray[np.uint64]:
        words = np.frombuffer(self.batch.column("topic_id").buffers()[1], np.uint64)
        return words.reshape(-1, 2)[: self.batch.num_rows]

    def is_of(self, key: Key) -> Mask:
        """A mask of the rows of a key's topic."""
        high, low = self._ids().T
        wanted = np.frombuffer(key[0], np.uint64)
        mine: Mask = (high == wanted[0]) & (low == wanted[1])
        return mine

    @cached_property
    def spans(self) -> dict[Key, tuple[int, int]]:
        """The index range [start, end) of the rows of each partition."""
        partitions, ids = self.column("partition"), self._ids()

        def key(row: int) -> Key:
            return ids[row].tobytes(), int(partitions[row])

        if key(0) == key(-1):  # rows are sorted, so all belong to this partition
            return {key(0): (0, len(partitions))}
        high, low = ids.T
        changes = partitions[1:] != partitions[:-1]
        changes |= (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        starts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(partitions)]
        return {key(start): (start, end) for start, end in pairwise(starts)}

    @cached_property
    def _columns(self) -> list[Array]:
        """The columns of `Row`, as partitions of one row each would wait for pyarrow's slices."""
        files = np.frombuffer(self.batch.column("file").buffers()[1], "V16")
        return [
            files[: self.batch.num_rows] if name == "file" else self.column(name)
            for name in Row.__slots__
        ]

    def row(self, index: int) -> Row:
        """The row at this index."""
        return self.rows(index, index + 1)[0]

    def rows(self, start: int, end: int) -> list[Row]:
        """The rows at indexes [start, end)."""
        columns = [values[start:end].tolist() for values in self._columns]
        return [Row(*values) for values in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class PageRef:
    """The reference to a leaf page in a checkpoint's root."""

    #: Key and base offset of the first row.
    first: tuple[Key, int]
    #: Key and base offset of the last row.
    last: tuple[Key, int]
    rows: int
    page_id: bytes
    checksum: int
    max_timestamp: int


def encode_page(rows: Sequence[tuple[Key, Row]], page_id: bytes) -> tuple[pa.Buffer, PageRef]:
    """The Arrow file of sorted rows, and the reference to it."""
    columns: list[list[Any]] = [[key[0] for key, _ in rows], [key[1] for key, _ in rows]]
    columns += [[getattr(row, name) for _, row in rows] for name in ROW_SCHEMA.names[2:]]
    contents = arrow_file(fixed_batch(columns, ROW_SCHEMA))
    (first, first_row), (last, last_row) = rows[0], rows[-1]
    return contents, PageRef(
        (first, first_row.base_offset),
        (last, last_row.base_offset),
        len(rows),
        page_id,
        checksum(contents),
        max(row.max_timestamp for _, row in rows),
    )


def decode_page(contents: pa.Buffer, ref: PageRef) -> Page:
    """The page from its bytes; CorruptionError when they don't match the checksum."""
    if checksum(contents) != ref.checksum:
        file = paths.page_file(ref.page_id)
        raise CorruptionError(f"manifest page checksum does not match in {file}", file=file)
    return Page(pa.ipc.open_file(contents).get_batch(0))


_REF_SCHEMA = pa.schema(
    [
        ("first_topic_id", pa.binary(16)),
        ("first_partition", pa.uint32()),
        ("first_offset", pa.int64()),
        ("last_topic_id", pa.binary(16)),
        ("last_partition", pa.uint32()),
        ("last_offset", pa.int64()),
        ("rows", pa.int64()),
        ("page_id", pa.binary(16)),
        ("checksum", pa.uint32()),
        ("max_timestamp", pa.int64()),
    ]
)


def encode_refs(refs: Iterable[PageRef], state: bytes, more: Mapping[str, bytes]) -> pa.Buffer:
    """A checkpoint's root: the table of pages, with the state of the store as metadata.

    `more`: parts of it that are too much for JSON, by name.
    """
    rows = [
        (
            *(*ref.first[0], ref.first[1]),
            *(*ref.last[0], ref.last[1]),
            *(ref.rows, ref.page_id, ref.checksum, ref.max_timestamp),
        )
        for ref in refs
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(_REF_SCHEMA)
    parts = {f"kmq.{name}": part for name, part in more.items()}
    schema = _REF_SCHEMA.with_metadata({"kmq.state": state, **parts})
    return arrow_file(fixed_batch(columns, schema))


def decode_refs(contents: pa.Buffer) -> tuple[list[PageRef], bytes, Mapping[str, bytes]]:
    """The table of pages and the state of a root, and what is too much for JSON."""
    reader = pa.ipc.open_file(contents)
    columns = [column.to_pylist() for column in reader.get_batch(0).columns]
    refs = [
        PageRef(((topic, part), base), ((last_topic, last_part), last_base), *facts)
        for topic, part, base, last_topic, last_part, last_base, *facts in zip(
            *columns, strict=True
        )
    ]
    parts = {name.decode().removeprefix("kmq."): p for name, p in reader.schema.metadata.items()}
    return refs, parts.pop("state"), parts


def arrow_file(batch: pa.RecordBatch) -> pa.Buffer:
    """One record batch as an Arrow IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
