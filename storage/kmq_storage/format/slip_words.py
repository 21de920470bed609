"""The words of a slip, each of which has a round of the slip, a number, and check bits.

The low 40 bits of a word are its value, the round times 2048 plus the number. The upper 24 bits are
check bits, which depend on the value, the place and the slip. So a word that was changed, moved or
taken from another slip is detected, and so are zeros. A value that differs in one byte, or is at
another place of the slip, never has the same check bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kmq_storage.arrays import Array

#: The most records of a round, and how often several of them can be noted together. Word 0 marks a
#: takeover. Then come the places of the records, and then the groups. All take 16 KiB.
PLACES, GROUPS = 1983, 64
WORDS = 1 + PLACES + GROUPS
#: All rounds of a slip are below this; 0 is the round of a word that was never set.
ROUNDS = 1 << 29
NUMBER_BITS = 11
_VALUE_BITS = 40
_VALUE = np.uint64((1 << _VALUE_BITS) - 1)
_SHIFT = np.uint64(_VALUE_BITS)
_MIX = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
#: In words of versions without check bits: the round, times 256, plus the number.
_PLAIN_BITS = 8


class Notes(NamedTuple):
    """The places of a round that are noted as done, and those with damaged notes."""

    done: set[int]
    unproven: set[int]


class SlipWords:
    """Makes and verifies the words of one slip; places are counted from 0."""

    def __init__(self, slip_id: bytes) -> None:
        seed = np.frombuffer(slip_id, "<u8", 1).astype(np.uint64)
        #: The part of the check bits that depends on slip and place; it is added to the value's.
        self._mixed = (seed + (np.arange(WORDS, dtype=np.uint64) << _SHIFT)) * np.uint64(_MIX)
        self._mixes: list[int] = self._mixed.tolist()

    def sealed(self, indexes: slice, number_of_round: int) -> list[int]:
        """The words at some indexes for a round, with the number 0."""
        value = np.array([number_of_round << NUMBER_BITS], np.uint64)
        checks = (self._mixed[indexes] + value * np.uint64(_MIX)) >> _SHIFT
        words: list[int] = (checks << _SHIFT | value).tolist()
        return words

    def sealed_at(self, indexes: Iterable[int], number_of_round: int, n: int = 0) -> list[int]:
        """The words at a few indexes, for which numpy would take longer, and with any number."""
        value = number_of_round << NUMBER_BITS | n
        mixed, mixes = value * _MIX, self._mixes
        return [
            (mixes[index] + mixed & _WORD) >> _VALUE_BITS << _VALUE_BITS | value
            for index in indexes
        ]

    def parsed(self, first: int, words: Sequence[int]) -> tuple[Array, Array]:
        """Rounds and numbers of words from an index on; round -1 for a damaged word."""
        found = np.array(words, np.uint64)
        values = found & _VALUE
        mixed = self._mixed[first : first + len(found)] + values * np.uint64(_MIX)
        proven = (mixed ^ found) >> _SHIFT == 0
        signed = values.astype(np.int64)
        return np.where(proven, signed >> NUMBER_BITS, -1), signed & (1 << NUMBER_BITS) - 1

    def notes(self, number: int, places: Sequence[int], groups: Sequence[int]) -> Notes:
        """The notes of a round from the words of places and groups.

        A group counts only if its word has this round and the number of places in the group.
        """
        rounds, in_group = self.parsed(1, places)
        of_groups, sizes = self.parsed(1 + PLACES, groups)
        mine, these = rounds == number, slice(1, 1 + len(groups))
        counts = np.bincount(in_group[mine], minlength=these.stop)
        told = np.full(1 << NUMBER_BITS, -1)  # the round of each group; 0 is for single notes
        told[0], told[these] = number, of_groups
        counting = told == number
        counting[these] &= sizes == counts[these]
        done = mine & counting[in_group]
        doubtful = mine & ~done & np.isin(told[in_group], (-1, number))
        return Notes(_set(done), _set(doubtful | (rounds < 0)))


def plain_notes(number: int, places: Sequence[int], groups: Sequence[int]) -> Notes:
    """As `SlipWords.notes`, for a slip of a version without check bits."""
    done = set()
    for place, word in enumerate(places):
        group = word & (1 << _PLAIN_BITS) - 1
        counts = not group or (group <= GROUPS and groups[group - 1] == number)
        if word >> _PLAIN_BITS == number and counts:
            done.add(place)
    return Notes(done, set())


def _set(which: Array) -> set[int]:
    return set(np.flatnonzero(which).tolist())
