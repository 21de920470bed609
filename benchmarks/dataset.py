"""The records everyone is measured with: random values of 100 bytes under random keys of 12."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.job import KEY_BYTES, VALUE_BYTES


def _noise(rows: int, width: int) -> bytes:
    return np.random.default_rng(width).bytes(rows * width)


def _items(rows: int, width: int) -> list[bytes]:
    noise = _noise(rows, width)
    return [noise[at : at + width] for at in range(0, rows * width, width)]


def values(rows: int) -> list[bytes]:
    """The values, as Python objects."""
    return _items(rows, VALUE_BYTES)


def keys(rows: int) -> list[bytes]:
    """The keys, as Python objects."""
    return _items(rows, KEY_BYTES)


def binary_column(buffer: pa.Buffer, rows: int, width: int) -> pa.Array:
    """A binary column over a buffer that holds values of one width; nothing is copied."""
    ends = pa.py_buffer(np.arange(0, rows * width + 1, width, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), rows, [None, ends, buffer])


def arrow_batches(rows: int, batch_rows: int) -> list[pa.RecordBatch]:
    """The same records as Arrow batches with the columns key and value."""
    columns = {"key": KEY_BYTES, "value": VALUE_BYTES}
    made = [_chunked(rows, batch_rows, width) for width in columns.values()]
    return [pa.record_batch(list(pair), names=list(columns)) for pair in zip(*made, strict=True)]


def _chunked(rows: int, batch_rows: int, width: int) -> list[pa.Array]:
    noise = _noise(rows, width)
    return [
        binary_column(pa.py_buffer(noise[at * width : (at + size) * width]), size, width)
        for at in range(0, rows, batch_rows)
        for size in [min(batch_rows, rows - at)]
    ]


def typed_batch(rows: int) -> pa.RecordBatch:
    """Records of ten integers, five floats and five texts of ten characters."""
    rng = np.random.default_rng(rows)
    columns: dict[str, object] = {f"n{n}": rng.integers(0, 1 << 40, rows) for n in range(10)}
    columns |= {f"x{n}": rng.random(rows) for n in range(5)}
    columns |= {
        f"text{n}": [f"{number:010d}" for number in rng.integers(0, 10**10, rows).tolist()]
        for n in range(5)
    }
    return pa.record_batch(columns)
