"""The records of one partition that a queue has not finished, as rows of numpy arrays.

A row has 42 bytes, so a million records that are held or delayed take 42 MB. Rows stand in
blocks, sorted by offset: what happens to one record touches one block, what happens to a run of
them is a few operations on arrays. A record can be had when its time has come: that of its
delivery, of its next try, or the end of its lock. So one column says when, for all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from kmq_storage.arrays import Array, Numbers
from kmq_storage.format.delivery_numbers import times_of

#: Nobody had it, or it was given back; somebody holds it until `at`; it comes again at `at`; it
#: is done, and only keeps its offset from being taken for one that nobody looked at yet.
FREE, LOCKED, WAITING, GONE = range(4)
NEVER = 2**63 - 1
PRIORITY = 4

ROW = np.dtype(
    [
        ("offset", "<i8"),
        #: When it can be had, UTC us.
        ("at", "<i8"),
        #: Nobody gets it from then on.
        ("expires", "<i8"),
        #: What its order goes by; 0 for none.
        ("key", "<u8"),
        #: The number of its last delivery (`Run.delivery`); 0 for a record that nobody had.
        ("count", "<i8"),
        ("state", "u1"),
        ("priority", "u1"),
    ]
)
_BLOCK = 4096
_FIRST_ROOM = 16
_WASTE = 1024


def new_rows(offsets: Numbers) -> Array:
    """Rows of records that nobody had yet, by their offsets in order."""
    rows: Array = np.zeros(len(offsets), ROW)
    rows["offset"] = offsets
    rows["expires"] = NEVER
    rows["priority"] = PRIORITY
    return rows


class _Block:
    """Some rows that follow each other, with room for more behind them."""

    __slots__ = ("_busy", "_oldest", "_soonest", "changes", "first", "live", "room", "size")

    def __init__(self, rows: Array) -> None:
        self.size = len(rows)
        self.room = np.zeros(max(_FIRST_ROOM, min(2 * self.size, _BLOCK)), ROW)
        self.room[: self.size] = rows
        self.first = int(rows[0]["offset"])
        self.live = int(np.count_nonzero(rows["state"] != GONE))
        #: One more before and after each change: others look at a block meanwhile.
        self.changes = 0
        #: When the first of them can be had, and after which changes somebody found that out.
        self._soonest = (-1, 0)
        #: When the first of them expires, and after which changes.
        self._oldest = (-1, 0)
        #: What records of others have to wait for, after which changes, and from when until when.
        self._busy: tuple[int, int, int, Array] = (-1, 0, 0, rows["key"])

    @property
    def rows(self) -> Array:
        """The rows that are there."""
        return self.room[: self.size]

    @property
    def last(self) -> int:
        """The offset of the last row."""
        return int(self.room["offset"][self.size - 1])

    def extend(self, rows: Array) -> bool:
        """Take over rows that come behind the last one; False where they don't fit."""
        end = self.size + len(rows)
        if end > _BLOCK:
            return False
        if end > len(self.room):
            room = np.zeros(min(2 * end, _BLOCK), ROW)
            room[: self.size] = self.rows
            self.room = room
        self.room[self.size : end] = rows
        self.size = end
        self.live += len(rows)
        self.changes += 1
        return True

    def first_at(self) -> int:
        """When the first of its records can be had."""
        changes, at = self._soonest
        if changes != self.changes:
            changes, at = self.changes, int(self.rows["at"].min())
            self._soonest = changes, at
        return at

    def first_expiry(self) -> int:
        """When the time of the first of its records is over that is not done."""
        changes, at = self._oldest
        if changes != self.changes:
            changes, rows = self.changes, self.rows
            at = int(rows["expires"].min(where=rows["state"] != GONE, initial=NEVER))
            self._oldest = changes, at
        return at

    def busy(self, now: int, most: int) -> Array:
        """The keys in order that others must wait for, found anew when they may differ."""
        changes, since, until, keys = self._busy
        if changes != self.changes or not since <= now < until:
            changes, rows = self.changes, self.rows
            keys = np.sort(rows["key"][_are_busy(rows, now, most)])
            until = min(_next(rows["at"], now), _next(rows["expires"], now))
            self._busy = changes, now, until, keys
        return keys


class Rows:
    """Rows by offset; GONE ones go when nobody needs them any more."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._firsts: list[int] = []
        #: Rows that are not GONE.
        self.live = 0
        self._size = 0
        #: Whether any record ever had a time after which nobody gets it.
        self.expire = False
        #: Priorities that some record had, besides the usual one.
        self.priorities: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._blocks)

    @property
    def last(self) -> int:
        """The offset of the last row; -1 without one."""
        return self._blocks[-1].last if self._blocks else -1

    def all(self) -> Array:
        """Every row, GONE ones among them, in one array of its own."""
        return np.concatenate([np.zeros(0, ROW), *(block.rows for block in self._blocks)])

    def put(self, rows: Array) -> None:
        """Add rows, in order; their offsets have none yet, and none between them has one."""
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
        """Add rows of records that nobody had yet, with these columns, behind all others."""
        rows = new_rows(np.arange(offsets.start, offsets.stop))
        for name, value in columns.items():
            rows[name] = value
        self._size += len(rows)
        self.live += len(rows)
        if not (self._blocks and self._blocks[-1].extend(rows)):
            self._merge(len(self._blocks), rows)

    def _note_kinds(self, rows: Array) -> None:
        if not self.expire and (rows["expires"] != NEVER).any():
            self.expire = True
        if (rows["priority"] != PRIORITY).any():
            self.priorities.update(np.unique(rows["priority"]).tolist())
            self.priorities.discard(PRIORITY)

    def _merge(self, number: int, rows: Array) -> None:
        """Put rows into the block of this number, or behind it, in pieces of bounded size."""
        if number < len(self._blocks) and self._blocks[number].last > int(rows[0]["offset"]):
            rows = np.concatenate([self._blocks[number].rows, rows])
            rows = rows[np.argsort(rows["offset"], kind="stable")]
            replaced = slice(number, number + 1)
        else:
            replaced = slice(number + 1, number + 1)
        blocks = _blocks_of(rows)
        self._blocks[replaced] = blocks
        self._firsts[replaced] = [block.first for block in blocks]

    def spans(self, first: int, end: int) -> Iterator[Array]:
        """The rows with offsets in [first, end), block by block, as views to look at."""
        return (block.rows[low:high] for block, low, high in self._spans(first, end))

    def _spans(self, first: int, end: int) -> Iterator[tuple[_Block, int, int]]:
        number = max(bisect_right(self._firsts, first) - 1, 0)
        for block in self._blocks[number:]:  # a copy: others look while somebody applies
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
        """Set columns of the rows with offsets in [first, end); not for ones that are done."""
        for block, low, high in self._spans(first, end):
            block.changes += 1
            for name, value in columns.items():
                block.room[name][low:high] = value
            block.changes += 1

    def change_known(self, offsets: Numbers, **columns: int | Array) -> bool:
        """Set columns of rows by their ascending offsets; False, and nothing, if one has no row."""
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
        """What the order of the records with offsets in [first, end) goes by."""
        at = 0
        for block, low, high in self._spans(first, end):
            block.changes += 1
            block.room["key"][low:high] = keys[at : at + high - low]
            block.changes += 1
            at += high - low

    def finish(self, first: int, end: int, *, below: int) -> int:
        """The records with offsets in [first, end) are done; how many were not before.

        Rows below an offset go altogether, at the latest when there are many of them.
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
        if self._size - self.live > max(_WASTE, self.live):
            self._tidy(below)
        return done

    def _drop(self, block: _Block) -> None:
        number = bisect_right(self._firsts, block.first) - 1
        del self._blocks[number], self._firsts[number]
        self._size -= block.size

    def _tidy(self, below: int) -> None:
        """Forget the rows below an offset that are done."""
        rows = self.all()
        rows = rows[(rows["state"] != GONE) | (rows["offset"] >= below)]
        blocks = _blocks_of(rows)
        self._blocks, self._firsts = blocks, [block.first for block in blocks]
        self._size = len(rows)

    def first_at(self) -> int:
        """When the first record can be had that has a row, UTC us."""
        return min((block.first_at() for block in self._blocks), default=NEVER)

    def next_after(self, now: int) -> int:
        """When the first record can be had that can't be had now, UTC us."""
        found = [NEVER]
        for block in self._blocks:
            at = block.first_at()
            found.append(at if at > now else _next(block.rows["at"], now))
        return min(found)

    def busy(self, now: int, most: int) -> Iterator[Array]:
        """The keys of records that others must wait for: held, failed before, or for ever.

        Those of each block, in order. `most`: how often a record is handed out at most.
        """
        return (block.busy(now, most) for block in list(self._blocks))

    def due(self, now: int) -> Iterator[Array]:
        """Copies of the rows that can be had now, in order."""
        for block in list(self._blocks):
            if block.first_at() <= now:
                rows = block.rows
                yield rows[rows["at"] <= now]

    def expired(self, now: int) -> Numbers:
        """The offsets of records that nobody holds and whose time is over."""
        found = [np.zeros(0, np.int64)]
        if not self.expire:
            return found[0]
        for block in list(self._blocks):
            if block.first_expiry() <= now:
                rows = block.rows
                found.append(rows["offset"][are_over(rows, now)])
        return np.concatenate(found)

    def lowest(self) -> int | None:
        """The offset of the first record that is not done."""
        for block in self._blocks:
            if block.live:
                rows = block.rows
                return int(rows["offset"][int((rows["state"] != GONE).argmax())])
        return None

    def end_of_run(self, offset: int) -> int:
        """The first offset at or after this one that has no row."""
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


def _next(times: Array, now: int) -> int:
    """The first of some times that is still to come."""
    return int(times[times > now].min(initial=NEVER))


def _are_busy(rows: Array, now: int, most: int) -> Array:
    ahead = (rows["at"] > now) & ((rows["state"] == LOCKED) | (rows["state"] == WAITING))
    failed = (rows["state"] != GONE) & (times_of(rows["count"]) >= most)
    busy: Array = (ahead | failed) & ~are_over(rows, now)
    return busy


def are_over(rows: Array, now: int) -> Array:
    """Of which rows nobody holds the record, and its time is over."""
    over: Array = (
        (rows["expires"] <= now)
        & (rows["state"] != GONE)
        & ((rows["state"] != LOCKED) | (rows["at"] <= now))
    )
    return over


def _blocks_of(rows: Array) -> list[_Block]:
    return [_Block(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK)]
