"""Finding the newest offset of each key in bounded memory, however many and long the keys are.

Keys are gathered up to a number of bytes, and then reduced to the newest offset of each key. If
that is still too much, keys are split into parts of a file by bits of their hash, and each part is
processed in the same way, by further bits. So the memory does not depend on the number of keys, nor
on the number of records of a key.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.format.murmur2 import murmur2
from kmq_storage.format.plain_columns import no_rows, number_column

#: The input: keys, none of them null, and their offsets.
KEYED = pa.schema([("key", pa.binary()), ("offset", pa.int64())])

#: How many bytes of keys and offsets are gathered, besides at most as many that were reduced
#: before. Grouping them takes a few times as much memory.
_GATHERED_BYTES = 8 * 1024 * 1024
#: The most bits for one split, into up to 256 parts.
_BITS_MAX = 8
_HASH_BITS = 32
#: Spreads hashes with equal low bits, which keys of one partition have.
_SPREAD = np.uint32(0x9E3779B1)


def keyed(keys: pa.Array | None, offsets: Numbers) -> pa.RecordBatch:
    """Keys and offsets of records, without those that have no key."""
    if keys is None:
        return no_rows(KEYED)
    found = pa.RecordBatch.from_arrays([keys, number_column(offsets)], schema=KEYED)
    return found.filter(keys.is_valid()) if keys.null_count else found


def newest_offsets(batches: Iterable[pa.RecordBatch], *, rows: int) -> Iterator[Numbers]:
    """The newest offset of each key in batches of `KEYED`, in several arrays and in no order.

    `rows` is about the number of all rows, which decides the number of parts.
    """
    return _Bucket(rows).newest(batches)


class _Bucket:
    """Keys whose hashes have equal first bits; in the beginning, all keys."""

    def __init__(self, rows: int, bits: int = 0) -> None:
        #: The expected number of rows, and the number so far.
        self._rows = rows
        self._seen = 0
        #: How many first bits of the hashes are equal.
        self._bits = bits
        self._gathered: list[pa.RecordBatch] = []
        self._bytes = 0
        #: The most bytes to hold: those that were reduced before, and as many new ones.
        self._most = _GATHERED_BYTES
        self._parts: _Parts | None = None

    def newest(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Numbers]:
        """The newest offset of each key in these batches."""
        for batch in batches:
            if batch.num_rows:
                self._add(batch)
        if self._parts is None:
            yield _folded(self._gathered).column("offset").to_numpy()
            return
        with closing(self._parts) as parts:
            self._put_into(parts)
            for batches, rows in parts.written():
                yield from _Bucket(rows, parts.bits).newest(batches)

    def _add(self, batch: pa.RecordBatch) -> None:
        self._seen += batch.num_rows
        self._bytes += batch.nbytes
        # A copy, since a slice would keep its whole file mapped.
        self._gathered.append(pa.ipc.read_record_batch(batch.serialize(), KEYED))
        if self._bytes <= self._most:
            return
        if self._parts is None:
            self._fold()
        if self._parts is not None:
            self._put_into(self._parts)

    def _fold(self) -> None:
        """Keep only the newest offset of each key; split into parts if that is still too much."""
        kept = _folded(self._gathered)
        self._gathered, self._bytes = kept.to_batches(), kept.nbytes
        self._most = self._bytes + _GATHERED_BYTES
        is_split = len(kept) > 1 and self._bits < _HASH_BITS
        if is_split and self._bytes > _GATHERED_BYTES:
            expected = self._bytes * max(self._rows, self._seen) // self._seen
            self._parts = _Parts(self._bits, expected // _GATHERED_BYTES)
            self._most = _GATHERED_BYTES

    def _put_into(self, parts: _Parts) -> None:
        if self._gathered:
            parts.add(pa.concat_batches(self._gathered))
        self._gathered, self._bytes = [], 0


class _Parts:
    """Parts of keys by the next bits of their hashes, in a temporary file."""

    def __init__(self, alike: int, wanted: int) -> None:
        self._file = tempfile.TemporaryFile(prefix="kmq-compact-")  # noqa: SIM115 - see close
        count = min(max(wanted.bit_length(), 1), _BITS_MAX, _HASH_BITS - alike)
        #: How many first bits of the hashes are equal within a part.
        self.bits = alike + count
        #: For each part, the position, length and rows of its pieces.
        self._pieces: dict[int, list[tuple[int, int, int]]] = {}
        self._mask = np.uint32((1 << count) - 1)

    def add(self, batch: pa.RecordBatch) -> None:
        """Write each row into its part."""
        for number, rows in self._sorted_out(batch):
            position = self._file.tell()
            length = self._file.write(rows.serialize())
            self._pieces.setdefault(number, []).append((position, length, rows.num_rows))

    def _sorted_out(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        hashes = murmur2(batch.column("key")) * _SPREAD
        numbers = (hashes >> np.uint32(_HASH_BITS - self.bits) & self._mask).astype(np.uint8)
        order = np.argsort(numbers, kind="stable")
        borders = np.searchsorted(numbers[order], np.arange(int(self._mask) + 2))
        in_order = batch.take(pa.array(order))
        for number, (low, high) in enumerate(pairwise(borders.tolist())):
            if low < high:
                yield number, in_order.slice(low, high - low)

    def written(self) -> Iterator[tuple[Iterator[pa.RecordBatch], int]]:
        """The batches and the number of rows of each part; no rows may be added afterwards."""
        self._file.flush()
        for pieces in self._pieces.values():
            yield self._read(pieces), sum(rows for _, _, rows in pieces)

    def _read(self, pieces: Iterable[tuple[int, int, int]]) -> Iterator[pa.RecordBatch]:
        for position, length, _ in pieces:
            message = os.pread(self._file.fileno(), length, position)
            yield pa.ipc.read_record_batch(pa.py_buffer(message), KEYED)

    def close(self) -> None:
        """Close the file, which deletes it."""
        self._file.close()


def _folded(batches: list[pa.RecordBatch]) -> pa.Table:
    """The newest offset of each key."""
    table = pa.Table.from_batches(batches, KEYED)
    newest = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
    return newest.select(["key", "offset_max"]).rename_columns(KEYED.names)
