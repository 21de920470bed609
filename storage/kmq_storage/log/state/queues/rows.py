"""The unfinished records of one partition of a queue, as rows of numpy arrays.

A row has 42 bytes, so a million records that are locked or delayed take 42 MB. Rows are kept in
blocks, sorted by offset: a change of one record touches one block, and a change of a run of
records is a few array operations.

A record can be delivered once a certain time has come: that of its scheduled delivery, of its next
try, or the end of its lock. So one column, `at`, says when, whatever the record's state is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from kmq_storage.arrays import Array, Numbers
from kmq_storage.format.delivery_numbers import times_of

#: The states of a record:
#: FREE: never delivered, or released by its receiver.
#: LOCKED: a receiver holds it until `at`.
#: WAITING: it is retried at `at`.
#: GONE: it is done. The row only tells its offset from those of records without a row.
FREE, LOCKED, WAITING, GONE = range(4)
NEVER = 2**63 - 1
PRIORITY = 4

ROW = np.dtype(
    [
        ("offset", "<i8"),
        #: When it can be delivered, UTC us.
        ("at", "<i8"),
        #: When it expires, UTC us: from then on, it is not delivered.
        ("expires", "<i8"),
        #: A hash of its ordering key; 0 for none.
        ("key", "<u8"),
        #: The number of its last delivery (`Run.delivery`); 0 if it was never delivered.
        ("count", "<i8"),
        ("state", "u1"),
        ("priority", "u1"),
    ]
)
_BLOCK = 4096
_FIRST_ROOM = 16
_WASTE = 1024


def new_rows(offsets: Numbers) -> Array:
    """Rows for records that were never delivered, with these ascending offsets."""
    rows: Array = np.zeros(len(offsets), ROW)
    rows["offset"] = offsets
    rows["expires"] = NEVER
    rows["priority"] = PRIORITY
    return rows


class _Block:
    """A block of rows in the order of offsets, with room for more behind them."""

    __slots__ = ("_busy", "_oldest", "_soonest", "changes", "first", "live", "room", "size")

    def __init__(self, rows: Array) -> None:
        self.size = len(rows)
        self.room = np.zeros(max(_FIRST_ROOM, min(2 * self.size, _BLOCK)), ROW)
        self.room[: self.size] = rows
        self.first = int(rows[0]["offset"])
        self.live = int(np.count_nonzero(rows["state"] != GONE))
        #: Counted up before and after each change, since other threads read blocks meanwhile.
        self.changes = 0
        #: A cached result of `first_at`, behind the `changes` that it holds for.
        self._soonest = (-1, 0)
        #: A cached result of `first_expiry`, behind the `changes` that it holds for.
        self._oldest = (-1, 0)
        #: A cached result of `busy`: the `changes`, and the times from and until which it holds.
        self._busy: tuple[int, int, int, Array] = (-1, 0, 0, rows["key"])

    @property
    def rows(self) -> Array:
        """The rows, without the room behind them."""
        return self.room[: self.size]

    @property
    def last(self) -> int:
        """The offset of the last row."""
        return int(self.room["offset"][self.size - 1])

    def extend(self, rows: Array) -> bool:
        """Add rows behind the last one; False when the block has no room for them."""
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
        """The earliest time at which one of its records can be delivered."""
        changes, at = self._soonest
        if changes != self.changes:
            changes, at = self.changes, int(self.rows["at"].min())
            self._soonest = changes, at
        return at

    def first_expiry(self) -> int:
        """The earliest time at which one of its unfinished records expires."""
        changes, at = self._oldest
        if changes != self.changes:
            changes, rows = self.changes, self.rows
            at = int(rows["expires"].min(where=rows["state"] != GONE, initial=NEVER))
            self._oldest = changes, at
        return at

    def busy(self, now: int, most: int) -> Array:
        """The sorted keys of records that block later records with the same key."""
        changes, since, until, keys = self._busy
        if changes != self.changes or not since <= now < until:
            changes, rows = self.changes, self.rows
            keys = np.sort(rows["key"][_are_busy(rows, now, most)])
            until = min(_next(rows["at"], now), _next(rows["expires"], now))
            self._busy = changes, now, until, keys
        return keys


class Rows:
    """All rows of a partition by offset; rows that are GONE are removed at some time."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
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
        return np.concatenate([np.zeros(0, ROW), *(block.rows for block in self._blocks)])

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
        if not (self._blocks and self._blocks[-1].extend(rows)):
            self._merge(len(self._blocks), rows)

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
        blocks = _blocks_of(rows)
        self._blocks[replaced] = blocks
        self._firsts[replaced] = [block.first for block in blocks]

    def spans(self, first: int, end: int) -> Iterator[Array]:
        """The rows with offsets in [first, end), block by block, as views."""
        return (block.rows[low:high] for block, low, high in self._spans(first, end))

    def _spans(self, first: int, end: int) -> Iterator[tuple[_Block, int, int]]:
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
        if self._size - self.live > max(_WASTE, self.live):
            self._tidy(below)
        return done

    def _drop(self, block: _Block) -> None:
        number = bisect_right(self._firsts, block.first) - 1
        del self._blocks[number], self._firsts[number]
        self._size -= block.size

    def _tidy(self, below: int) -> None:
        """Remove the rows below an offset that are done."""
        rows = self.all()
        rows = rows[(rows["state"] != GONE) | (rows["offset"] >= below)]
        blocks = _blocks_of(rows)
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
            found.append(at if at > now else _next(block.rows["at"], now))
        return min(found)

    def busy(self, now: int, most: int) -> Iterator[Array]:
        """For each block, the sorted keys of records that block later records with the same key.

        These are locked records, records that wait for a retry, and those that were delivered
        `most` times without success.
        """
        return (block.busy(now, most) for block in list(self._blocks))

    def due(self, now: int) -> Iterator[Array]:
        """Copies of the rows that can be delivered now, in order."""
        for block in list(self._blocks):
            if block.first_at() <= now:
                rows = block.rows
                yield rows[rows["at"] <= now]

    def expired(self, now: int) -> Numbers:
        """The offsets of unlocked records that have expired."""
        found = [np.zeros(0, np.int64)]
        if not self.expire:
            return found[0]
        for block in list(self._blocks):
            if block.first_expiry() <= now:
                rows = block.rows
                found.append(rows["offset"][are_over(rows, now)])
        return np.concatenate(found)

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


def _next(times: Array, now: int) -> int:
    """The earliest of some times that is after `now`."""
    return int(times[times > now].min(initial=NEVER))


def _are_busy(rows: Array, now: int, most: int) -> Array:
    ahead = (rows["at"] > now) & ((rows["state"] == LOCKED) | (rows["state"] == WAITING))
    failed = (rows["state"] != GONE) & (times_of(rows["count"]) >= most)
    busy: Array = (ahead | failed) & ~are_over(rows, now)
    return busy


def are_over(rows: Array, now: int) -> Array:
    """A mask of the unlocked, unfinished records that have expired."""
    over: Array = (rows["expires"] <= now) & are_unlocked(rows, now)
    return over


def are_unlocked(rows: Array, now: int) -> Array:
    """A mask of the unfinished records that no receiver holds."""
    unlocked: Array = (rows["state"] != GONE) & ((rows["state"] != LOCKED) | (rows["at"] <= now))
    return unlocked


def are_held(rows: Array, delivery: int, now: int) -> Array:
    """A mask of the records that this delivery still holds."""
    held: Array = (rows["state"] == LOCKED) & (rows["count"] == delivery) & (rows["at"] > now)
    return held


def _blocks_of(rows: Array) -> list[_Block]:
    return [_Block(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK)]
