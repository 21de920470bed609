"""Many queues at once: each part of a topic is gone through once for all that is asked for.

A part is a run, or what is in none yet, where the messages of each queue stand one behind the
other. What is looked for are ranges of its rows; a message by itself is never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError
from kmq_storage.format.gathered import RowRanges, check_column, ranges, rearranged
from kmq_storage.format.plain_columns import number_column, numbers_of
from kmq_storage.objects.mapping import is_readable

#: So many bytes of maps are looked at twice, to be proven and to be copied; what is more than that
#: is copied at once, and once more into its order, so that no disk reads it twice.
_HELD_BYTES = 2 << 30
SCHEMA = pa.schema([("queue", pa.binary()), ("index", pa.int64()), ("value", pa.binary())])


class QueueRows(Protocol):
    """A part of a topic in which the messages of each queue stand one behind the other."""

    @property
    def has_beginnings(self) -> bool:
        """Whether queues begin anew here: what earlier parts have of these is dead."""

    def beginnings_of(self, names: pa.Array) -> Numbers:
        """The index of the first message here of each queue that does; -1 of others."""

    def spans(self, names: pa.Array) -> tuple[Numbers, Numbers]:
        """The first row of each of many queues, and the one behind; the names ascend."""

    def gathered(self, firsts: Numbers, counts: Numbers) -> Iterator[RowRanges]:
        """The messages in some ranges of rows, none of them empty, in pieces."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for: at most `most` messages of each queue, from an index of its own on.

    An index of -1 is the first one that the queue has.
    """

    names: pa.Array
    firsts: Numbers
    most: int

    def given_up(self, parts: Sequence[QueueRows]) -> Iterator[tuple[bytes, int]]:
        """The queues that have no such index any more, each with the index."""
        if not any(part.has_beginnings for part in parts):
            return
        order = self._order()
        _, begin = _lives(parts, self.names.take(number_column(order)))
        firsts = self.firsts[order]
        for row in order[(firsts >= 0) & (firsts < begin)].tolist():
            yield self.names[row].as_py(), int(self.firsts[row])

    def _order(self) -> Numbers:
        """The rows in the order of their names."""
        return numbers_of(pc.sort_indices(self.names)).astype(np.int64)

    def answer(self, parts: Sequence[QueueRows]) -> pa.RecordBatch:
        """The messages, in the order of the names; of none that is given up."""
        order = self._order()
        firsts, ranges_of, found = self._found(parts, order)
        given = np.empty_like(order)  # where each stands among the sorted
        given[order] = np.arange(len(order))
        # Of a queue's ranges the part decides, in whose order they are.
        wanted = np.argsort(order[ranges_of.queues], kind="stable")
        values = _copied(rearranged(found, ranges_of.counts, wanted))
        found.clear()  # it may take as much memory again
        per_queue = ranges_of.per_queue(len(order))[given]
        check_column(
            "names", int(per_queue @ numbers_of(pc.binary_length(self.names)).astype(np.int64))
        )
        names = self.names.take(number_column(np.repeat(np.arange(len(order)), per_queue)))
        indexes = number_column(ranges(firsts[given], per_queue))
        return pa.RecordBatch.from_arrays([names, indexes, values], schema=SCHEMA)

    def _found(
        self, parts: Sequence[QueueRows], order: Numbers
    ) -> tuple[Numbers, _Ranges, list[RowRanges]]:
        """The first index of each queue, the names sorted; where it has messages, and these."""
        names = self.names.take(number_column(order))
        part_of, before = _lives(parts, names)
        first = np.maximum(self.firsts[order], before)
        behind = first + self.most
        ranged = [_Ranges.none()]
        found: list[RowRanges] = []
        held = 0
        for number, part in enumerate(parts):
            starts, ends = part.spans(names)
            ends = np.where(part_of > number, starts, ends)  # what is dead counts not
            since = np.maximum(first, before)
            count = np.maximum(np.minimum(behind, before + ends - starts) - since, 0)
            some = np.flatnonzero(count)
            for gathered in part.gathered((starts + since - before)[some], count[some]):
                held += gathered.held
                found.append(gathered if held <= _HELD_BYTES else gathered.copied())
            ranged.append(_Ranges(some, count[some]))
            before += ends - starts
            if (before >= behind).all():
                break
        return first, _Ranges.joined(ranged), found


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of messages, each of one queue in one part: few of them, however many parts are."""

    #: The number of the queue, its name sorted.
    queues: Numbers
    #: How many messages.
    counts: Numbers

    @classmethod
    def none(cls) -> _Ranges:
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[_Ranges]) -> _Ranges:
        """Those of parts, one behind the other."""
        queues = np.concatenate([part.queues for part in parts])
        return cls(queues, np.concatenate([part.counts for part in parts]))

    def per_queue(self, queues: int) -> Numbers:
        """The messages of each of so many queues."""
        found = np.zeros(queues, np.int64)
        np.add.at(found, self.queues, self.counts)
        return found


def _copied(messages: RowRanges) -> pa.Array:
    """The messages as a column; CorruptionError when the disk can't read them once more."""
    # They were proven, but memory may have been needed for other things since.
    if not all(map(is_readable, messages.data)):
        raise CorruptionError("messages that were read can't be read any more")
    return messages.column()


def _lives(parts: Sequence[QueueRows], names: pa.Array) -> tuple[Numbers, Numbers]:
    """In which part each queue began for the last time, and the index of its first message."""
    part_of = np.zeros(len(names), np.int64)
    indexes = np.zeros(len(names), np.int64)
    for number, part in enumerate(parts):
        if part.has_beginnings:
            anew = part.beginnings_of(names)
            part_of = np.where(anew < 0, part_of, number)
            indexes = np.where(anew < 0, indexes, anew)
    return part_of, indexes
