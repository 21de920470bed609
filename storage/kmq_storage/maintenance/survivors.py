"""Which records of a partition key compaction keeps: the newest of each key.

Runs in bounded memory whatever the partition's size: keys go to buckets by their hash, in files
where they are many, and each bucket is grouped by itself. What is left is one bit per offset.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kmq_storage.format.murmur2 import murmur2
from kmq_storage.format.records import has_value, keys_of
from kmq_storage.log.scan import Slice

if TYPE_CHECKING:
    import numpy.typing as npt

#: Keys and offsets of one bucket; grouping them takes a few times as much.
_BUCKET_BYTES = 16 * 1024 * 1024

_SCHEMA = pa.schema([("key", pa.binary()), ("offset", pa.int64())])


class Survivors:
    """One bit per offset of a span: whether the record stays."""

    def __init__(self, start: int, end: int) -> None:
        #: The first offset of the span.
        self.start = start
        self._bits = np.zeros(-(-(end - start) // 8), np.uint8)
        self._buried = np.zeros_like(self._bits)

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """These stay."""
        self._set(self._bits, offsets)

    def bury(self, offsets: npt.NDArray[np.int64]) -> None:
        """These go, even if they are the newest of their key."""
        self._set(self._buried, offsets)

    def _set(self, bits: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        at = offsets - self.start
        np.bitwise_or.at(bits, at >> 3, np.left_shift(1, at & 7).astype(np.uint8))

    def count(self, start: int, end: int) -> int:
        """How many with offsets in [start, end) stay."""
        first, behind = max(start - self.start, 0), end - self.start
        span = slice(first >> 3, -(-behind // 8))
        bits = np.unpackbits(self._bits[span] & ~self._buried[span], bitorder="little")
        skipped = first & 7
        return int(bits[skipped : skipped + behind - first].sum())

    def of(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether each of these stays."""
        at = offsets - self.start
        bytes_of = self._bits[at >> 3] & ~self._buried[at >> 3]
        found: npt.NDArray[np.bool_] = (bytes_of >> (at & 7)) & 1 != 0
        return found


def newest_of_each_key(
    slices: Iterable[tuple[Slice, bool]], span: tuple[int, int], *, key_bytes: int
) -> Survivors:
    """The records to keep of a span of offsets: the newest of each key, and those without one.

    With each slice: whether its tombstones are old enough to go, too.
    `key_bytes` is about how many bytes all keys have; it decides how many buckets there are.
    """
    survivors = Survivors(*span)
    buckets = max(key_bytes // _BUCKET_BYTES, 1)
    with ExitStack() as closing:
        bins: Sequence[_Bin] = [_MemoryBin()] if buckets == 1 else _file_bins(closing, buckets)
        for part, is_old in slices:
            keyed = _keyed(part, survivors)
            if is_old:
                survivors.bury(_tombstones(part))
            for number, rows in _by_bucket(keyed, buckets):
                bins[number].add(rows)
        for each in bins:
            survivors.add(_newest(each.table()))
    return survivors


def _keyed(part: Slice, survivors: Survivors) -> pa.RecordBatch:
    """Keys and offsets; records without a key stay, whatever comes."""
    offsets = part.offsets()
    keys = keys_of(part.batch)
    if keys is None:
        survivors.add(offsets)
        return pa.RecordBatch.from_pylist([], _SCHEMA)
    if keys.null_count:
        keyless = keys.is_null().to_numpy(zero_copy_only=False)
        survivors.add(offsets[keyless])
        keys, offsets = keys.drop_null(), offsets[~keyless]
    return pa.RecordBatch.from_arrays([keys, pa.array(offsets, pa.int64())], schema=_SCHEMA)


def _tombstones(part: Slice) -> npt.NDArray[np.int64]:
    keys, offsets = keys_of(part.batch), part.offsets()
    if keys is None:
        return offsets[:0]
    deleted = ~has_value(part.batch).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(deleted & keys.is_valid().to_numpy(zero_copy_only=False))
    return offsets.take(rows)


def _by_bucket(keyed: pa.RecordBatch, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    if buckets == 1:
        yield 0, keyed
        return
    numbers = murmur2(keyed.column(0)) % np.uint32(buckets)
    order = np.argsort(numbers, kind="stable")
    borders = np.searchsorted(numbers[order], np.arange(buckets + 1))
    sorted_rows = keyed.take(pa.array(order))
    for number, (low, high) in enumerate(pairwise(borders.tolist())):
        if low < high:
            yield number, sorted_rows.slice(low, high - low)


def _newest(table: pa.Table) -> npt.NDArray[np.int64]:
    newest = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
    found: npt.NDArray[np.int64] = newest.column("offset_max").to_numpy()
    return found


class _MemoryBin:
    """A bucket that fits into memory."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, _SCHEMA)


class _FileBin:
    """A bucket in a file of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = pa.ipc.new_stream(str(path), _SCHEMA)

    def add(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def table(self) -> pa.Table:
        self._writer.close()
        with pa.OSFile(str(self._path)) as file:
            return pa.ipc.open_stream(file).read_all()


_Bin = _MemoryBin | _FileBin


def _file_bins(closing: ExitStack, buckets: int) -> list[_FileBin]:
    folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="kmq-compact-")))
    return [_FileBin(folder / f"{number}.arrows") for number in range(buckets)]
