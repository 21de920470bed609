"""The murmur2 hash of keys, over whole columns, with Kafka's seed.

The function is org.apache.kafka.common.utils.Utils.murmur2.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

Hashes: TypeAlias = "npt.NDArray[np.uint32]"

_MULTIPLIER, _MASK = 0x5BD1E995, 0xFFFFFFFF
_M = np.uint32(_MULTIPLIER)
_SEED = np.uint32(0x9747B28C)
_R = np.uint32(24)
_WORD = struct.Struct("<I")


def murmur2(keys: pa.BinaryArray) -> Hashes:
    """The 32-bit murmur2 of every key of a binary array (a null hashes like an empty key)."""
    offsets, data = _buffers(keys)
    starts, lengths = offsets[:-1], np.diff(offsets)
    with np.errstate(over="ignore"):
        if len(keys) and (lengths == lengths[0]).all():
            hashes = _of_one_length(data, int(starts[0]), len(keys), int(lengths[0]))
        else:
            hashes = _of_any_length(data, starts, lengths)
        hashes ^= hashes >> np.uint32(13)
        hashes *= _M
        hashes ^= hashes >> np.uint32(15)
    return hashes


def _of_one_length(data: npt.NDArray[np.uint8], start: int, count: int, length: int) -> Hashes:
    """Before the last mixing, for keys of one length: they stand evenly, one after another."""
    hashes = np.full(count, _SEED ^ np.uint32(length))
    for at in range(0, length, 4):
        words: Hashes = np.ndarray(count, "<u4", data, start + at, (length,)).copy()
        if length - at >= 4:
            words *= _M
            words ^= words >> _R
            words *= _M
            hashes *= _M
            hashes ^= words
        else:
            words &= np.uint32((1 << 8 * (length - at)) - 1)
            hashes ^= words
            hashes *= _M
    return hashes


def _of_any_length(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Hashes:
    hashes = _SEED ^ lengths.astype(np.uint32)
    for word in range(int(lengths.max(initial=0)) // 4):
        rows = _having(lengths >= 4 * (word + 1))
        hashes[rows] = _mixed(hashes[rows], _words(data, starts[rows] + 4 * word))
    return _with_tails(hashes, data, starts, lengths)


def murmur2_of(key: bytes) -> int:
    """The 32-bit murmur2 of one key; for a few keys faster than setting up whole columns."""
    whole = len(key) & ~3
    hashed = int(_SEED) ^ len(key)
    for (word,) in _WORD.iter_unpack(key[:whole]):
        word = word * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ ((word ^ word >> 24) * _MULTIPLIER & _MASK)
    if len(key) > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def _having(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp] | slice:
    """The rows of a mask; all of them as a slice, which needs no copy."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def _buffers(keys: pa.BinaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    # Four bytes more than there are, so that the words of a last key never reach outside.
    data = np.zeros((data_buffer.size if data_buffer else 0) + 4, np.uint8)
    if data_buffer is not None:
        data[:-4] = np.frombuffer(data_buffer, np.uint8)
    return offsets.astype(np.int64), data


def _words(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> Hashes:
    """The little-endian 32-bit words that begin at these bytes."""
    words: Hashes = np.ndarray(len(data) - 3, "<u4", data, strides=(1,))[starts]
    return words


def _mixed(hashes: Hashes, words: Hashes) -> Hashes:
    words = words * _M
    words ^= words >> _R
    mixed: Hashes = (hashes * _M) ^ (words * _M)
    return mixed


def _with_tails(
    hashes: Hashes,
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> Hashes:
    """Mix in the one to three bytes after the last whole word."""
    tails = lengths % 4
    if not tails.any():
        return hashes
    words = _words(data, starts + lengths - tails)
    words &= (np.uint32(1) << (8 * tails).astype(np.uint32)) - np.uint32(1)
    return np.where(tails > 0, (hashes ^ words) * _M, hashes)
