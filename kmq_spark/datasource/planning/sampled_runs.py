"""How the bytes of a run are spread over its offsets, estimated from some of its record batches.

The records of a run are sorted by queue, so each of its batches has records of all offsets, and its
footer doesn't tell which offsets are heavy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError
from kmq_storage.format.layout import Layout
from kmq_storage.format.plain_columns import value_lengths
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.runs import run_offsets
from kmq_storage.model import Chunk, Segment

#: Into so many parts of equal bytes a run is divided, far more than there are tasks for it.
_PARTS = 1_024
#: How many batches are announced ahead of their use.
_AHEAD = 16
_SIZES = Layout(only=("offset", "value"))


def sampled(reader: ChunkReader, run: Segment, batches: int) -> list[tuple[int, int]]:
    """The base offset and bytes of consecutive parts of a run, from so many batches.

    Together they have all of its bytes. There are none if no batch can be read.
    """
    chunks = reader.footer(run).chunks
    step = max(-(-len(chunks) // batches), 1)
    found = [*_records(reader, chunks[::step])]
    if not found:
        return []
    offsets, sizes = map(np.concatenate, zip(*found, strict=True))
    order = np.argsort(offsets)
    sums = np.cumsum(sizes[order])
    firsts = np.unique(sums.searchsorted(sums[-1] * np.arange(_PARTS) / _PARTS, "right"))
    before = np.append(0, sums)[firsts] / sums[-1]
    read = np.diff(np.append(before, 1) * run.length)
    bases = [run.base_offset, *offsets[order][firsts[1:]].tolist()]
    return list(zip(bases, read.astype(np.int64).tolist(), strict=True))


def _records(reader: ChunkReader, chunks: Sequence[Chunk]) -> Iterator[tuple[Numbers, Numbers]]:
    """The offsets and bytes of the records of each batch; damaged ones are left out."""
    for at, chunk in enumerate(chunks):
        if at % _AHEAD == 0:
            reader.prefetch(chunks[at : at + 2 * _AHEAD], _SIZES)
        with suppress(CorruptionError):
            batch = reader.stored(chunk, _SIZES)
            values = value_lengths(batch.column("value"))
            rest = chunk.location.length - int(values.sum())
            yield run_offsets([batch]), values + max(rest // len(values), 1)
