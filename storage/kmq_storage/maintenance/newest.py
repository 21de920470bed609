"""The newest offset of each key, in bounded memory, however many keys there are and how long.

Keys gather up to a number of bytes; of those of one key only the newest offset stays. What is too
much even so goes to parts of a file by bits of the keys' hash, and each part is gone through in
the same way by further bits. So memory follows neither the number of records of a key nor what
the first of them looked like.
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

#: What is gone through: keys, none of them null, and their offsets.
KEYED = pa.schema([("key", pa.binary()), ("offset", pa.int64())])

#: Bytes of keys and offsets that gather beside at most as many that are the newest of their keys;
#: grouping them takes a few times as much.
_GATHERED_BYTES = 8 * 1024 * 1024
#: Up to 256 parts at a time.
_BITS_MAX = 8
_HASH_BITS = 32
#: Spreads hashes whose low bits are alike: those of keys that share a partition.
_SPREAD = np.uint32(0x9E3779B1)


def keyed(keys: pa.Array | None, offsets: Numbers) -> pa.RecordBatch:
    """The keys of records, without those that have none, and the offset of each."""
    if keys is None:
        return no_rows(KEYED)
    found = pa.RecordBatch.from_arrays([keys, number_column(offsets)], schema=KEYED)
    return found.filter(keys.is_valid()) if keys.null_count else found


def newest_offsets(batches: Iterable[pa.RecordBatch], *, rows: int) -> Iterator[Numbers]:
    """The newest offset of each key in batches of `KEYED`, some at a time, in no order.

    `rows` is about how many there are in all: it decides how many parts are begun with.
    """
    return _Bucket(rows).newest(batches)


class _Bucket:
    """Keys of which the first bits of the hash are alike: all keys, in the beginning."""

    def __init__(self, rows: int, bits: int = 0) -> None:
        #: How many rows come, and came.
        self._rows = rows
        self._seen = 0
        #: Bits of the hash that are alike.
        self._bits = bits
        self._gathered: list[pa.RecordBatch] = []
        self._bytes = 0
        #: How many bytes there may be: those of the newest of before, and as many new ones.
        self._most = _GATHERED_BYTES
        self._parts: _Parts | None = None

    def newest(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Numbers]:
        """The newest offset of each key that these have."""
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
        # A copy: who holds on to a slice holds the file that it is mapped from.
        self._gathered.append(pa.ipc.read_record_batch(batch.serialize(), KEYED))
        if self._bytes <= self._most:
            return
        if self._parts is None:
            self._fold()
        if self._parts is not None:
            self._put_into(self._parts)

    def _fold(self) -> None:
        """Forget all but the newest of each key; begin with parts when that is too much still."""
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
    """Where keys go by the next bits of their hash: parts of a file that goes with its process."""

    def __init__(self, alike: int, wanted: int) -> None:
        self._file = tempfile.TemporaryFile(prefix="kmq-compact-")  # noqa: SIM115 - see close
        count = min(max(wanted.bit_length(), 1), _BITS_MAX, _HASH_BITS - alike)
        #: Bits of the hash that are alike in one part.
        self.bits = alike + count
        #: What is in each part: where it stands, its bytes and its rows.
        self._pieces: dict[int, list[tuple[int, int, int]]] = {}
        self._mask = np.uint32((1 << count) - 1)

    def add(self, batch: pa.RecordBatch) -> None:
        """Each row into its part."""
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
        """What is in each part, and how many rows it has; no more come."""
        self._file.flush()
        for pieces in self._pieces.values():
            yield self._read(pieces), sum(rows for _, _, rows in pieces)

    def _read(self, pieces: Iterable[tuple[int, int, int]]) -> Iterator[pa.RecordBatch]:
        for position, length, _ in pieces:
            message = os.pread(self._file.fileno(), length, position)
            yield pa.ipc.read_record_batch(pa.py_buffer(message), KEYED)

    def close(self) -> None:
        """Give back the file."""
        self._file.close()


def _folded(batches: list[pa.RecordBatch]) -> pa.Table:
    """Of each key the newest offset."""
    table = pa.Table.from_batches(batches, KEYED)
    newest = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
    return newest.select(["key", "offset_max"]).rename_columns(KEYED.names)
