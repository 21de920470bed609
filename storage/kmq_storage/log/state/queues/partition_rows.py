"""All rows of one partition of a queue, in blocks that are sorted by offset."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from kmq_storage.arrays import Array, Numbers
from kmq_storage.log.state.queues.rows import (
    GONE,
    NEVER,
    PRIORITY,
    ROW,
    Block,
    blocks_of,
    new_rows,
    next_of,
)

_WASTE = 1024


class Rows:
    """All rows of a partition by offset; rows that are GONE are removed at some time."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._firsts: list[int] = []
        #: Rows that are not GONE.
        self.live = 0
        self._size = 0
        #: Whether any record ever had a time of expiry.
        self.expire = False
        #: Priorities of records, besides the default one.
        self.priorities: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._blocks)

    @property
    def last(self) -> int:
        """The offset of the last row; -1 without one."""
        return self._blocks[-1].last if self._blocks else -1

    def all(self) -> Array:
        """A copy of all rows, including those that are GONE."""
        return np.concatenate([np.zeros(0, ROW), *self.tables()])

    def tables(self) -> list[Array]:
        """All rows, block by block; not copied."""
        return [block.rows for block in self._blocks]

    def put(self, rows: Array) -> None:
        """Add rows with ascending offsets; there must be no rows at or between these offsets."""
        if not len(rows):
            return
        self._note_kinds(rows)
        self._size += len(rows)
        self.live += int(np.count_nonzero(rows["state"] != GONE))
        first = int(rows[0]["offset"])
        number = bisect_right(self._firsts, first) - 1
        if number == len(self._blocks) - 1 and number >= 0:
            block = self._blocks[-1]
            if block.last < first and (rows["state"] != GONE).all() and block.extend(rows):
                return
        self._merge(max(number, 0), rows)

    def append(self, offsets: range, **columns: int) -> None:
        """Add rows for these offsets behind all others, with some columns set to a value each."""
        rows = new_rows(np.arange(offsets.start, offsets.stop))
        for name, value in columns.items():
            rows[name] = value
        self._size += len(rows)
        self.live += len(rows)
        if self._blocks and self._blocks[-1].extend(rows):
            return
        blocks = blocks_of(rows, own=True)
        self._blocks += blocks
        self._firsts += [block.first for block in blocks]

    def _note_kinds(self, rows: Array) -> None:
        if not self.expire and (rows["expires"] != NEVER).any():
            self.expire = True
        if (rows["priority"] != PRIORITY).any():
            self.priorities.update(np.unique(rows["priority"]).tolist())
            self.priorities.discard(PRIORITY)

    def _merge(self, number: int, rows: Array) -> None:
        """Merge rows into the block with this number, or add blocks behind it."""
        if number < len(self._blocks) and self._blocks[number].last > int(rows[0]["offset"]):
            rows = np.concatenate([self._blocks[number].rows, rows])
            rows = rows[np.argsort(rows["offset"], kind="stable")]
            replaced = slice(number, number + 1)
        else:
            replaced = slice(number + 1, number + 1)
        blocks = blocks_of(rows)
        self._blocks[replaced] = blocks
        self._firsts[replaced] = [block.first for block in blocks]

    def spans(self, first: int, end: int) -> Iterator[Array]:
        """The rows with offsets in [first, end), block by block, as views."""
        return (block.rows[low:high] for block, low, high in self._spans(first, end))

    def _spans(self, first: int, end: int) -> Iterator[tuple[Block, int, int]]:
        number = max(bisect_right(self._firsts, first) - 1, 0)
        for block in self._blocks[number:]:  # a copy, as another thread may apply a commit
            if block.first >= end:
                return
            low, high = block.rows["offset"].searchsorted((first, end)).tolist()
            if low < high:
                yield block, low, high

    def offsets(self, first: int, end: int) -> Numbers:
        """The offsets in [first, end) that have a row."""
        found = [span["offset"] for span in self.spans(first, end)]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def change(self, first: int, end: int, **columns: int) -> None:
        """Set columns of the rows with offsets in [first, end), none of which may be GONE."""
        for block, low, high in self._spans(first, end):
            block.changes += 1
            for name, value in columns.items():
                block.room[name][low:high] = value
            block.changes += 1

    def change_known(self, offsets: Numbers, **columns: int | Array) -> bool:
        """Set columns of the rows at these ascending offsets.

        When one of them has no row, nothing is changed and the result is False.
        """
        found, at = [], 0
        for block, low, high in self._spans(int(offsets[0]), int(offsets[-1]) + 1):
            behind = int(offsets.searchsorted(block.last, "right"))
            known = block.rows["offset"][low:high]
            places = known.searchsorted(offsets[at:behind])
            if not np.array_equal(known[np.minimum(places, len(known) - 1)], offsets[at:behind]):
                return False
            found.append((block, low + places, slice(at, behind)))
            at = behind
        if at < len(offsets) or (np.diff(offsets) <= 0).any():
            return False
        for block, places, some in found:
            block.changes += 1
            for name, value in columns.items():
                block.room[name][places] = value if isinstance(value, int) else value[some]
            block.changes += 1
        return True

    def set_keys(self, first: int, end: int, keys: Array) -> None:
        """Set the ordering keys of the records with offsets in [first, end)."""
        at = 0
        for block, low, high in self._spans(first, end):
            block.changes += 1
            block.room["key"][low:high] = keys[at : at + high - low]
            block.changes += 1
            at += high - low

    def finish(self, first: int, end: int, *, below: int) -> int:
        """Mark the records with offsets in [first, end) as done; returns how many were not.

        Done rows below offset `below` can be removed. That happens at the latest when there are
        many of them.
        """
        done = 0
        for block, low, high in list(self._spans(first, end)):
            rows = block.room[low:high]
            count = int(np.count_nonzero(rows["state"] != GONE))
            block.changes += 1
            rows["state"], rows["at"] = GONE, NEVER
            block.changes += 1
            block.live -= count
            done += count
            if not block.live and block.last < below:
                self._drop(block)
        self.live -= done
        most = max(_WASTE, self.live)
        if self._size - self.live > most and self._waste_below(below) > most:
            self._tidy(below)
        return done

    def _waste_below(self, below: int) -> int:
        """How many done rows, at least, are below an offset: those behind it have to stay."""
        number = bisect_right(self._firsts, below) - 1  # the last block that may reach further
        return sum(block.size - block.live for block in self._blocks[: max(number, 0)])

    def _drop(self, block: Block) -> None:
        number = bisect_right(self._firsts, block.first) - 1
        del self._blocks[number], self._firsts[number]
        self._size -= block.size

    def _tidy(self, below: int) -> None:
        """Remove the rows below an offset that are done."""
        rows = self.all()
        rows = rows[(rows["state"] != GONE) | (rows["offset"] >= below)]
        blocks = blocks_of(rows)
        self._blocks, self._firsts = blocks, [block.first for block in blocks]
        self._size = len(rows)

    def first_at(self) -> int:
        """The earliest time (UTC us) at which a record with a row can be delivered."""
        return min((block.first_at() for block in self._blocks), default=NEVER)

    def next_after(self, now: int) -> int:
        """The earliest time after `now` at which a record becomes deliverable, UTC us."""
        found = [NEVER]
        for block in self._blocks:
            at = block.first_at()
            found.append(at if at > now else next_of(block.rows["at"], now))
        return min(found)

    def busy(self, now: int, most: int) -> Iterator[Array]:
        """For each block, the sorted keys of records that block later records with the same key.

        These are locked records, records that wait for a retry, and those that were delivered
        `most` times without success.
        """
        return (block.busy(now, most) for block in list(self._blocks))

    def due(self, now: int) -> Iterator[Block]:
        """The blocks with records that can be delivered now, in order."""
        return (block for block in list(self._blocks) if block.first_at() <= now)

    def expired(self, now: int) -> Numbers:
        """The offsets of unlocked records that have expired."""
        none = np.zeros(0, np.int64)
        if not self.expire:
            return none
        blocks = (block for block in list(self._blocks) if block.first_expiry() <= now)
        return np.concatenate([none, *(block.expired(now) for block in blocks)])

    def lowest(self) -> int | None:
        """The offset of the first unfinished record."""
        for block in self._blocks:
            if block.live:
                rows = block.rows
                return int(rows["offset"][int((rows["state"] != GONE).argmax())])
        return None

    def end_of_run(self, offset: int) -> int:
        """The first offset at or after this one without a row."""
        if offset > self.last:
            return offset
        number = bisect_right(self._firsts, offset) - 1
        while 0 <= number < len(self._blocks):
            offsets = self._blocks[number].rows["offset"]
            low = int(offsets.searchsorted(offset))
            if low == len(offsets) or offsets[low] != offset:
                return offset
            ahead = offsets[low:] - np.arange(len(offsets) - low)
            length = int(ahead.searchsorted(offset, "right"))
            offset += length
            if length < len(ahead):
                return offset
            number += 1
        return offset
