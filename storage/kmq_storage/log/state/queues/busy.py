"""The busy keys of a queue with `order="key"`: later records with such a key must wait.

The keys come sorted from each block of rows. A receiver of few records looks its few keys up in
each block, because sorting the keys of a million locked records takes longer than the rest of a
receive.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kmq_storage.arrays import Array

#: Up to this many keys are looked up in each block; for more, the keys of all blocks are sorted.
_FEW = 64
#: At most this often; then sorting takes less time than another look.
_LOOKS = 4


class Busy:
    """The busy keys, sorted within each block. A record with key 0 has no key and never waits.

    If `each_once`, a key that was found free is busy from then on.
    """

    def __init__(self, blocks: Iterable[Array], *, each_once: bool = False) -> None:
        self._blocks = [keys for keys in blocks if len(keys)]
        self._each_once = each_once
        self._all: Array | None = None
        self._looks = 0

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def first_free(self, keys: Array, most: int) -> Array:
        """The indexes of the first `most` of some keys that don't have to wait."""
        if not self._each_once:
            return self._first_free(keys, most)
        free = self._first_free(keys, len(keys))
        once = _once(keys, free)[:most]
        self._blocks.append(np.sort(keys[once]))
        self._all = None
        return once

    def _first_free(self, keys: Array, most: int) -> Array:
        few = keys[:_FEW]
        if self._all is None and most <= _FEW and self._looks < _LOOKS:
            self._looks += 1
            free = _free(few, self._blocks)
            if len(free) >= most or len(few) == len(keys):
                return free[:most]
        return _free(keys, [self._in_order()])[:most]

    def _in_order(self) -> Array:
        if self._all is None:
            keys = np.concatenate([np.zeros(0, np.uint64), *self._blocks])
            self._all = np.sort(keys)  # several times as fast as merging the runs, `kind="stable"`
        return self._all


def _once(keys: Array, places: Array) -> Array:
    """Those of some places that are the first of their key, or have no key."""
    is_first = keys[places] == 0
    is_first[np.unique(keys[places], return_index=True)[1]] = True
    once: Array = places[is_first]
    return once


def _free(keys: Array, blocks: Iterable[Array]) -> Array:
    """The indexes of keys that are 0 or in none of the blocks."""
    busy: Array = np.zeros(len(keys), np.bool_)
    for ordered in blocks:
        if len(ordered):  # faster than `np.isin` for sorted keys
            busy |= ordered[np.minimum(ordered.searchsorted(keys), len(ordered) - 1)] == keys
    return np.flatnonzero(~busy | (keys == 0))
