"""The messages of the queue race, as arrays: each follows from its queue and index.

58 bytes: 48 of base64, the index (4), a check value (4) and two more; every so many-th message has
1,024 bytes.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[np.int64]

SMALL, LARGE, LARGE_EVERY = 58, 1_024, 50_000
_BODIES = 1 << 16


def _bodies() -> npt.NDArray[np.uint8]:
    """Different texts of 48 characters."""
    raw = np.random.default_rng(2018).bytes(36 * _BODIES)
    return np.frombuffer(base64.b64encode(raw), np.uint8).reshape(_BODIES, 48)


_POOL = _bodies()


def name_of(queue: int) -> bytes:
    """The name of a queue."""
    return b"Queue-%d" % queue


def messages(queues: _Numbers, indexes: _Numbers) -> pa.Array:
    """The messages of these queues with these indexes."""
    rows = np.empty((len(queues), SMALL), np.uint8)
    checks = _checks(queues, indexes)
    rows[:, :48] = _POOL[checks & (_BODIES - 1)]
    rows[:, 48:52] = indexes.astype("<u4").view(np.uint8).reshape(-1, 4)
    rows[:, 52:56] = checks.astype("<u4").view(np.uint8).reshape(-1, 4)
    rows[:, 56:] = ord("=")
    bounds = pa.py_buffer(np.arange(0, (len(rows) + 1) * SMALL, SMALL, dtype=np.int32))
    small = pa.Array.from_buffers(pa.binary(), len(rows), [None, bounds, pa.py_buffer(rows)])
    return _with_large(small, np.flatnonzero((queues + 7 * indexes) % LARGE_EVERY == 0))


def _checks(queues: _Numbers, indexes: _Numbers) -> npt.NDArray[np.uint32]:
    mixed = (queues.astype(np.uint64) << np.uint64(32) | indexes.astype(np.uint64)) + np.uint64(1)
    return ((mixed * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)).astype(np.uint32)


def _with_large(small: pa.Array, places: npt.NDArray[np.intp]) -> pa.Array:
    parts, done = [], 0
    for place in places.tolist():
        parts += [small.slice(done, place - done), _large(small[place].as_py())]
        done = place + 1
    return pa.concat_arrays([*parts, small.slice(done)]) if parts else small


def _large(message: bytes) -> pa.Array:
    return pa.array([(message * (LARGE // SMALL + 1))[:LARGE]], pa.binary())
