"""Reading many queues at once: each part of a topic is searched once for all queues.

A part is a run, or the rows that are in no run yet, sorted by queue. The search finds ranges of
rows and never handles a single message.
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

#: Up to this many bytes, mapped values are read twice, to verify and to copy them. Beyond it, they
#: are copied when they are verified, and again into their order, so that no disk reads them twice.
_HELD_BYTES = 2 << 30
SCHEMA = pa.schema([("queue", pa.binary()), ("index", pa.int64()), ("value", pa.binary())])


class QueueRows(Protocol):
    """A part of a topic in which the messages of each queue are consecutive rows."""

    @property
    def has_beginnings(self) -> bool:
        """Whether queues begin anew here, so that their messages in earlier parts are dead."""

    def beginnings_of(self, names: pa.Array) -> Numbers:
        """For each queue that begins anew here, the index of its first message; else -1."""

    def spans(self, names: pa.Array) -> tuple[Numbers, Numbers]:
        """The first row of each queue, and the row behind its last; the names must ascend."""

    def gathered(self, firsts: Numbers, counts: Numbers) -> Iterator[RowRanges]:
        """The messages in some non-empty ranges of rows, in pieces."""

    def offsets_at(self, rows: Numbers, borders: Numbers) -> Numbers:
        """The offsets of some rows, or others on the same side of each of these offsets."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for at most `most` messages of each queue, each from its own first index on.

    An index of -1 stands for the queue's first message.
    """

    names: pa.Array
    firsts: Numbers
    most: int

    def given_up(self, parts: Sequence[QueueRows]) -> Iterator[tuple[bytes, int]]:
        """The queues whose first index was trimmed, with this index."""
        if not any(part.has_beginnings for part in parts):
            return
        order = self.order()
        _, begin = _lives(parts, self.names.take(number_column(order)))
        firsts = self.firsts[order]
        for row in order[(firsts >= 0) & (firsts < begin)].tolist():
            yield self.names[row].as_py(), int(self.firsts[row])

    def reach(self, parts: Sequence[QueueRows], borders: Numbers) -> tuple[Numbers, Numbers]:
        """For each queue the offsets of the message before the wanted ones, and of the last wanted.

        -1 where there is none. The names must ascend. `borders` is that of `QueueRows.offsets_at`.
        """
        part_of, at = _lives(parts, self.names)
        first = np.maximum(self.firsts, at)
        lows, highs = np.full((2, len(first)), -1)
        for number, part in enumerate(parts):
            starts, ends = part.spans(self.names)
            counts = np.where(part_of > number, 0, ends - starts)  # dead messages do not count
            before = np.minimum(first - at, counts)
            last = first - at + (self.most - 1)
            for found, rows, here in (
                (lows, starts + before - 1, before > 0),
                (highs, starts + last, (last >= 0) & (last < counts)),
            ):
                found[here] = part.offsets_at(rows[here], borders)
            at = at + counts
        return lows, highs

    def order(self) -> Numbers:
        """The numbers of the queues, sorted by name."""
        return numbers_of(pc.sort_indices(self.names)).astype(np.int64)

    def answer(self, parts: Sequence[QueueRows]) -> pa.RecordBatch:
        """The messages, in the order of the request; no first index may be trimmed."""
        order = self.order()
        firsts, ranges_of, found = self._found(parts, order)
        given = np.empty_like(order)  # the position of each queue in the sorted order
        given[order] = np.arange(len(order))
        # The sort is stable, so the ranges of one queue stay in the order of the parts.
        wanted = np.argsort(order[ranges_of.queues], kind="stable")
        values = _copied(rearranged(found, ranges_of.counts, wanted))
        found.clear()  # it may hold as much memory again
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
        """For each queue, sorted by name, its first index; and the ranges found, with messages."""
        names = self.names.take(number_column(order))
        part_of, before = _lives(parts, names)
        first = np.maximum(self.firsts[order], before)
        behind = first + self.most
        ranged = [_Ranges.none()]
        found: list[RowRanges] = []
        held = 0
        for number, part in enumerate(parts):
            starts, ends = part.spans(names)
            ends = np.where(part_of > number, starts, ends)  # dead messages do not count
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
    """Ranges of messages, each of one queue in one part."""

    #: The number of the queue, sorted by name.
    queues: Numbers
    #: The number of messages.
    counts: Numbers

    @classmethod
    def none(cls) -> _Ranges:
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[_Ranges]) -> _Ranges:
        """The ranges of all parts in sequence."""
        queues = np.concatenate([part.queues for part in parts])
        return cls(queues, np.concatenate([part.counts for part in parts]))

    def per_queue(self, queues: int) -> Numbers:
        """The number of messages of each queue, of `queues` in all."""
        found = np.zeros(queues, np.int64)
        np.add.at(found, self.queues, self.counts)
        return found


def _copied(messages: RowRanges) -> pa.Array:
    """The messages as a column; CorruptionError when the disk can't read them again."""
    # They were verified before, but their pages may have left the memory since.
    if not all(map(is_readable, messages.data)):
        raise CorruptionError("messages that were read can't be read any more")
    return messages.column()


def _lives(parts: Sequence[QueueRows], names: pa.Array) -> tuple[Numbers, Numbers]:
    """For each queue, the part in which it last began, and the index of its first message."""
    part_of = np.zeros(len(names), np.int64)
    indexes = np.zeros(len(names), np.int64)
    for number, part in enumerate(parts):
        if part.has_beginnings:
            anew = part.beginnings_of(names)
            part_of = np.where(anew < 0, part_of, number)
            indexes = np.where(anew < 0, indexes, anew)
    return part_of, indexes
