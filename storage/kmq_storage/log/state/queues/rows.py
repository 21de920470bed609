"""The unfinished records of one partition of a queue, as rows of numpy arrays.

A row has 42 bytes, so a million records that are locked or delayed take 42 MB. Rows are kept in
blocks, sorted by offset: a change of one record touches one block, and a change of a run of
records is a few array operations.

A record can be delivered once a certain time has come: that of its scheduled delivery, of its next
try, or the end of its lock. So one column, `at`, says when, whatever the record's state is.
"""

from __future__ import annotations

import numpy as np

from kmq_storage.arrays import Array, Numbers
from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.log.state.queues.busy import Busy

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
_NO_KEYS: Array = np.zeros(0, ROW["key"])


def new_rows(offsets: Numbers) -> Array:
    """Rows for records that were never delivered, with these ascending offsets."""
    rows: Array = np.zeros(len(offsets), ROW)
    rows["offset"] = offsets
    rows["expires"] = NEVER
    rows["priority"] = PRIORITY
    return rows


class Block:
    """A block of rows in the order of offsets, with room for more behind them."""

    __slots__ = (
        "_busy",
        "_oldest",
        "_priorities",
        "_soonest",
        "_tries",
        "_waiting",
        "changes",
        "first",
        "live",
        "room",
        "size",
    )

    def __init__(self, rows: Array, *, own: bool = False) -> None:
        """`own`: nobody else uses the array, whose records are unfinished: it is not copied."""
        self.size = len(rows)
        if own:
            self.room, self.live = rows, self.size
        else:
            self.room = np.zeros(max(_FIRST_ROOM, min(2 * self.size, _BLOCK)), ROW)
            self.room[: self.size] = rows
            self.live = int(np.count_nonzero(rows["state"] != GONE))
        self.first = int(rows[0]["offset"])
        #: Counted up before and after each change, since other threads read blocks meanwhile.
        self.changes = 0
        #: A cached result of `first_at`, behind the `changes` that it holds for.
        self._soonest = (-1, 0)
        #: A cached result of `first_expiry`, behind the `changes` that it holds for.
        self._oldest = (-1, 0)
        #: A cached result of `busy`: the `changes`, and the times from and until which it holds.
        self._busy: tuple[int, int, int, Array] = (-1, 0, 0, _NO_KEYS)
        #: A cached result of `tries`, behind the `changes` that it holds for.
        self._tries = (-1, 0)
        #: A cached set of bits for `has_due`, behind the `changes`, and the times from and until
        #: which it holds.
        self._priorities = (-1, 0, 0, 0)
        #: The keys of all its due records, behind the `changes` and the time until which that
        #: holds; only known when a receiver found that they all were busy.
        self._waiting: tuple[int, int, Array] = (-1, 0, _NO_KEYS)

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
            until = min(next_of(rows["at"], now), next_of(rows["expires"], now))
            self._busy = changes, now, until, keys
        return keys

    def expired(self, now: int) -> Numbers:
        """The offsets of its unlocked records that have expired."""
        rows = self.rows
        found: Numbers = rows["offset"][are_over(rows, now)]
        return found

    def tries(self) -> int:
        """The most deliveries that one of its records had."""
        changes, most = self._tries
        if changes != self.changes:
            changes, most = self.changes, int(times_of(self.rows["count"]).max())
            self._tries = changes, most
        return most

    def has_due(self, priority: int, now: int) -> bool:
        """Whether a record that can be delivered now has this priority."""
        changes, since, until, bits = self._priorities
        if changes != self.changes or not since <= now < until:
            changes, rows = self.changes, self.rows
            found = np.bincount(rows["priority"][rows["at"] <= now])
            bits = sum(1 << each for each in np.flatnonzero(found).tolist())
            self._priorities = changes, now, next_of(rows["at"], now), bits
        return bool(bits >> priority & 1)

    def due(self, now: int) -> Array:
        """A copy of its rows that can be delivered now."""
        rows = self.rows
        due: Array = rows[rows["at"] <= now]
        return due

    def note_waiting(self, changes: int, now: int, keys: Array) -> None:
        """Remember the keys of the due records, which a receiver read when there were `changes`."""
        self._waiting = changes, next_of(self.rows["at"], now), np.unique(keys)

    def waits(self, now: int, busy: Busy) -> bool:
        """Whether each due record is known to wait for another one with its key."""
        changes, until, keys = self._waiting
        return changes == self.changes and now < until and not len(busy.first_free(keys, 1))


def blocks_of(rows: Array, *, own: bool = False) -> list[Block]:
    """Rows in the order of offsets as blocks of about the same size; `own` as for a `Block`.

    So a full block in which rows are put, one after the other, becomes two with room for more.
    """
    if 0 < len(rows) <= _BLOCK:  # the usual case, which `array_split` would take far longer for
        return [Block(rows, own=own)]
    count = -(-len(rows) // _BLOCK)  # a part of the array would keep all of it in memory
    return [Block(some) for some in np.array_split(rows, count)] if count else []


def next_of(times: Array, now: int) -> int:
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
