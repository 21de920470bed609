"""The keys that others have to wait for, as what is remembered of a queue's blocks tells them.

Pure. Who wants few records asks each block for few keys: to put the keys of a million records
that somebody holds in order takes longer than all else that a receive does.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kmq_storage.arrays import Array

#: So many keys are looked for in each block; for more, all blocks are put in order first.
_FEW = 64


class Busy:
    """Keys, those of each block in order; 0 stands for none, and waits for nobody."""

    def __init__(self, blocks: Iterable[Array]) -> None:
        self._blocks = [keys for keys in blocks if len(keys)]
        self._all: Array | None = None

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def first_free(self, keys: Array, most: int) -> Array:
        """The places of the first of some keys that don't have to wait, at most so many."""
        few = keys[:_FEW]
        if self._all is None and most <= _FEW:
            free = _free(few, self._blocks)
            if len(free) >= most or len(few) == len(keys):
                return free[:most]
        return _free(keys, [self._in_order()])[:most]

    def _in_order(self) -> Array:
        if self._all is None:
            keys = np.concatenate([np.zeros(0, np.uint64), *self._blocks])
            self._all = np.sort(keys, kind="stable")  # by now in runs
        return self._all


def _free(keys: Array, blocks: Iterable[Array]) -> Array:
    """The places of those that are 0, or in none of the blocks."""
    busy: Array = np.zeros(len(keys), np.bool_)
    for ordered in blocks:
        if len(ordered):  # `np.isin` takes longer where they are in order
            busy |= ordered[np.minimum(ordered.searchsorted(keys), len(ordered) - 1)] == keys
    return np.flatnonzero(~busy | (keys == 0))
