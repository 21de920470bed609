"""The murmur2 hash of keys, over whole columns, with Kafka's seed.

The function is org.apache.kafka.common.utils.Utils.murmur2.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.format.binary_columns import row_bounds, row_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

Hashes: TypeAlias = "npt.NDArray[np.uint32]"
#: A slice for all rows, which avoids a copy.
_Rows: TypeAlias = "npt.NDArray[np.intp] | slice"

_MULTIPLIER, _MASK = 0x5BD1E995, 0xFFFFFFFF
_M = np.uint32(_MULTIPLIER)
_SEED = np.uint32(0x9747B28C)
_R = np.uint32(24)
_WORD = struct.Struct("<I")
#: So few keys are hashed faster one after the other, from this byte on, than a word of each at a
#: time.
_FEW, _LONG = 32, 1024
#: The bytes of a long key that are looked at together; they bound the memory.
_PIECE = 1 << 18


def murmur2(keys: pa.BinaryArray) -> Hashes:
    """The 32-bit murmur2 of every key of a binary array (a null hashes like an empty key)."""
    bounds, data = row_bounds(keys), row_bytes(keys)
    lengths = np.diff(bounds)
    with np.errstate(over="ignore"):
        if len(keys) > _few_from(int(lengths.max(initial=0))) and (lengths == lengths[0]).all():
            hashes = _of_one_length(data, len(keys), int(lengths[0]))
        else:
            starts = bounds[:-1].astype(np.int64) - bounds[:1]
            hashes = _of_any_length(_padded(data), starts, lengths)
        hashes ^= hashes >> np.uint32(13)
        hashes *= _M
        hashes ^= hashes >> np.uint32(15)
    return hashes


def _padded(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The data and four more bytes, so that reading the words of the last key stays inside."""
    return np.append(data, np.zeros(4, np.uint8))


def _of_one_length(data: npt.NDArray[np.uint8], count: int, length: int) -> Hashes:
    """The hashes before the final mixing, for keys of one length that follow one another."""
    hashes = np.full(count, _SEED ^ np.uint32(length))
    if length % 4:
        data = _padded(data)
    for at in range(0, length, 4):
        words: Hashes = np.ndarray(count, "<u4", data, at, (length,)).copy()
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
    data: npt.NDArray[np.uint8], starts: Numbers, lengths: npt.NDArray[np.int32]
) -> Hashes:
    """The hashes before the final mixing: of all keys word by word, then of the few longest ones.

    A long key among short ones would otherwise cost a look at all keys for each of its words.
    """
    hashes = _SEED ^ lengths.astype(np.uint32)
    rows: _Rows = slice(None)
    whole, at = lengths & ~3, 0
    while len(left := whole[rows]) > _few_from(at):
        if not (longer := left > at).all():
            rows = np.flatnonzero(longer) if isinstance(rows, slice) else rows[longer]
            continue
        hashes[rows] = _mixed(hashes[rows], _words(data, starts[rows] + at))
        at += 4
    for row in np.arange(len(lengths))[rows].tolist():
        begin = int(starts[row])
        hashes[row] = _of_words(int(hashes[row]), data[begin + at : begin + int(whole[row])])
    return _with_tails(hashes, data, starts, lengths)


def _few_from(at: int) -> int:
    """How many keys are few from this byte on."""
    return _FEW if at >= _LONG else 0


def _of_words(hashed: int, data: npt.NDArray[np.uint8]) -> int:
    """The hash of one key after these words of it."""
    for at in range(0, len(data), _PIECE):
        words = data[at : at + _PIECE].view("<u4") * _M
        words ^= words >> _R
        for word in (words * _M).tolist():
            hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    return hashed


def murmur2_of(key: bytes) -> int:
    """The 32-bit murmur2 of one key; for a few keys this is faster than hashing a column."""
    whole = len(key) & ~3
    hashed = int(_SEED) ^ len(key)
    for (word,) in _WORD.iter_unpack(key[:whole]):
        word = word * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ ((word ^ word >> 24) * _MULTIPLIER & _MASK)
    if len(key) > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def _words(data: npt.NDArray[np.uint8], starts: Numbers) -> Hashes:
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
    starts: Numbers,
    lengths: npt.NDArray[np.int32],
) -> Hashes:
    """Mix in the one to three bytes after the last whole word."""
    tails = lengths % 4
    if not tails.any():
        return hashes
    words = _words(data, starts + lengths - tails)
    words &= (np.uint32(1) << (8 * tails).astype(np.uint32)) - np.uint32(1)
    return np.where(tails > 0, (hashes ^ words) * _M, hashes)
