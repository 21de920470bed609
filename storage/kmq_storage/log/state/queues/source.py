"""One partition as a queue reads it: the untouched backlog, and rows of unfinished records.

All of it is pure. Records from `next` on are the backlog. They have no rows, except for those with
a delay, for example. They are delivered in order, so a long backlog costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kmq_storage.arrays import Array, Numbers
from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import RUN_ROWS_MAX, LookEntry, Run
from kmq_storage.log.state.queues.busy import Busy
from kmq_storage.log.state.queues.partition_rows import Rows
from kmq_storage.log.state.queues.rows import (
    FREE,
    GONE,
    LOCKED,
    NEVER,
    PRIORITY,
    WAITING,
    Block,
    are_held,
    are_over,
    are_unlocked,
    new_rows,
)
from kmq_storage.log.state.queues.runs import expanded, runs_of

_NONE = np.zeros(0, np.int64)
#: From this many runs on, they are looked up at once instead of one by one.
_MANY = 8


@dataclass(frozen=True, slots=True)
class Wish:
    """What a receiver asks of one partition."""

    #: The most records.
    most: int
    #: UTC us.
    now: int
    #: Records with this many deliveries are not delivered again.
    deliveries_max: int
    priority: int
    #: Whether only records are delivered that were looked at.
    looked: bool
    #: Keys whose records must wait, for `order="key"`.
    busy: Busy | None


class Source:
    """The state of one partition in a queue."""

    __slots__ = ("_looked", "_unnumbered", "next", "rows")

    def __init__(self, start: int, *, looked: bool, unnumbered: int) -> None:
        #: Records without a row from here on were neither delivered nor looked at.
        self.next = start
        #: Whether every record must be looked at, also one that has a row already.
        self._looked = looked
        #: The number before that of a record's first delivery.
        self._unnumbered = unnumbered
        self.rows = Rows()

    # --- looking ------------------------------------------------------------------------

    def unseen(self, end: int) -> int:
        """The number of backlog records up to `end` that have no row."""
        ahead = len(self.rows.offsets(self.next, NEVER)) if self.rows else 0
        return max(end - self.next - ahead, 0)

    def held(self, end: int, now: int) -> int:
        """The number of unfinished records up to `end`, without expired ones."""
        return self.rows.live + self.unseen(end) - len(self.rows.expired(now))

    def take(self, key: Key, span: tuple[int, int], wish: Wish) -> list[Run]:
        """The first deliverable records with offsets in a span, as runs."""
        start, end = span
        unseen = wish.priority == PRIORITY and not wish.looked
        begin = max(self.next, start)
        if unseen and not self._has_rows_for(begin, wish.now):
            count = min(wish.most, end - begin)
            return [Run(*key, begin, count, self._unnumbered + 1)] if count > 0 else []
        offsets, counts = self._due(start, wish)
        if unseen:
            fresh = self._unseen_offsets(begin, end, wish.most)
            offsets = np.concatenate([offsets, fresh])
            counts = np.concatenate([counts, np.zeros(len(fresh), np.int64)])
            order = np.argsort(offsets, kind="stable")
            offsets, counts = offsets[order], counts[order]
        counts[counts == 0] = self._unnumbered
        return list(runs_of(key, offsets[: wish.most], counts[: wish.most] + 1))

    def _has_rows_for(self, begin: int, now: int) -> bool:
        """Whether rows matter for a delivery: some are due, or have offsets from `begin` on."""
        rows = self.rows
        return bool(rows) and (rows.first_at() <= now or rows.last >= begin)

    def _due(self, start: int, wish: Wish) -> tuple[Numbers, Numbers]:
        """The offsets of deliverable rows, and their delivery numbers."""
        offsets, counts, found = [_NONE], [_NONE], 0
        for block in self.rows.due(wish.now):
            if self._has_nothing(block, wish):
                continue
            changes, rows = block.changes, block.due(wish.now)
            good = (
                (times_of(rows["count"]) < wish.deliveries_max)
                & (rows["priority"] == wish.priority)
                & (rows["expires"] > wish.now)
                & (rows["offset"] >= start)
            )
            if wish.looked:
                good &= rows["offset"] < self.next
            places = np.flatnonzero(good)
            if wish.busy is not None:
                keys = rows["key"][places]
                places = places[wish.busy.first_free(keys, wish.most - found)]
                if not len(places):
                    block.note_waiting(changes, wish.now, rows["key"])
            offsets.append(rows["offset"][places])
            counts.append(rows["count"][places])
            found += len(offsets[-1])
            if found >= wish.most:
                break
        return np.concatenate(offsets), np.concatenate(counts)

    def _has_nothing(self, block: Block, wish: Wish) -> bool:
        """Whether it is known that a block has no record for a receiver, without going through."""
        if self.rows.priorities and not block.has_due(wish.priority, wish.now):
            return True
        return wish.busy is not None and block.waits(wish.now, wish.busy)

    def _unseen_offsets(self, begin: int, end: int, most: int) -> Numbers:
        """The first `most` offsets in [begin, end) without a row."""
        found, count, step = [_NONE], 0, most
        while begin < end and count < most:
            step *= 2  # so that many rows ahead, of a source that was bound again, take few steps
            behind = min(end, begin + step)
            here = np.arange(begin, behind)
            here = np.setdiff1d(here, self.rows.offsets(begin, behind), assume_unique=True)
            found.append(here[: most - count])
            count += len(found[-1])
            begin = behind
        return np.concatenate(found)

    def unseen_offsets(self, end: int) -> Numbers:
        """The offsets of backlog records up to `end` that have no row."""
        return self._unseen_offsets(self.next, end, end)

    def unfinished(self, unseen: Numbers, now: int) -> Array:
        """A row for each unfinished record, in order, including these `unseen` offsets."""
        rows = self.rows.all()
        rows = rows[(rows["state"] != GONE) & ~are_over(rows, now)]
        rows = np.concatenate([rows, new_rows(unseen)])
        return rows[np.argsort(rows["offset"], kind="stable")]

    def looked_and_due(self, now: int, deliveries_max: int) -> int:
        """How many records that were looked at are due."""
        found = 0
        for rows in (block.due(now) for block in self.rows.due(now)):
            good = (rows["offset"] < self.next) & (rows["expires"] > now)
            good &= times_of(rows["count"]) < deliveries_max
            found += int(np.count_nonzero(good))
        return found

    def exhausted(self, key: Key, now: int, deliveries_max: int) -> list[Run]:
        """Due records that had all their deliveries."""
        runs: list[Run] = []
        for block in self.rows.due(now):
            if block.tries() < deliveries_max:
                continue
            rows = block.due(now)
            much = rows[times_of(rows["count"]) >= deliveries_max]
            runs += runs_of(key, much["offset"], much["count"])
        return runs

    def free_in(self, key: Key, start: int, end: int, now: int) -> list[Run]:
        """Unfinished, unlocked records in [start, end), whether they were delivered before or not.

        If records must be looked at, those that were not are left out.
        """
        pieces = list(self.rows.spans(start, end)) if self.rows else []
        rows = np.concatenate([new_rows(_NONE), *pieces])
        free = rows[are_unlocked(rows, now)]
        first = end if self._looked else max(start, self.next)
        taken = rows["offset"][rows["offset"] >= first].tolist()
        between = zip([first, *(offset + 1 for offset in taken)], [*taken, end], strict=True)
        unseen = (
            Run(*key, start, min(high - start, RUN_ROWS_MAX), self._unnumbered)
            for low, high in between
            for start in range(low, high, RUN_ROWS_MAX)
        )
        # Separate runs: `are_free` takes a run with rows or one without, but no mixture.
        return [*runs_of(key, free["offset"], free["count"]), *unseen]

    def spans(self, run: Run) -> Iterator[Array]:
        """The rows of a run, block by block."""
        return self.rows.spans(run.first, run.end)

    def first_expiry(self, run: Run) -> int:
        """When the first of a run's records expires, UTC us."""
        return min((int(rows["expires"].min()) for rows in self.spans(run)), default=NEVER)

    def are_held(self, run: Run, now: int) -> bool:
        """Whether the delivery that a run names still holds all its records."""
        found = 0
        for rows in self.spans(run):
            if not are_held(rows, run.delivery, now).all():
                return False
            found += len(rows)
        return found == run.rows

    def late_of(self, run: Run, now: int) -> Iterable[Run]:
        """The records of a run that its delivery no longer holds."""
        held = [rows["offset"][are_held(rows, run.delivery, now)] for rows in self.spans(run)]
        offsets = np.arange(run.first, run.end)
        offsets = np.setdiff1d(offsets, np.concatenate([_NONE, *held]))
        return runs_of(run.key, offsets, np.full(len(offsets), run.delivery))

    def held_of(self, run: Run, now: int = 0) -> list[Run]:
        """The records of a run that its delivery holds at `now`, or held last if that is 0."""
        found: list[Run] = []
        for rows in self.spans(run):
            held = are_held(rows, run.delivery, now)
            if len(held) == run.rows and held.all():  # the usual case
                return [run]
            offsets = rows["offset"][held]
            found += runs_of(run.key, offsets, np.full(len(offsets), run.delivery, np.int64))
        return found

    def are_free(self, run: Run, now: int) -> bool:
        """Whether a run's records are unlocked, and had no delivery since the one it names."""
        found = 0
        for rows in self.spans(run):
            if not (are_unlocked(rows, now) & (rows["count"] == run.delivery)).all():
                return False
            found += len(rows)
        unseen = run.delivery == self._unnumbered and run.first >= self.next
        return found == run.rows or (unseen and found == 0)

    # --- applying -----------------------------------------------------------------------

    def put(self, rows: Array) -> None:
        """Add rows of records that were not delivered yet, for example with a delay."""
        self.rows.put(rows)
        self._go_on(self.next)

    def look(self, entry: LookEntry) -> None:
        """Apply a look at records: those that the filter lets in get a row."""
        self.next = entry.end
        at = 0
        for first, count in entry.entered:
            run = Run(b"", 0, first, count, 0)
            self.see(run)
            if entry.keys:
                keys = np.array(entry.keys[at : at + count], np.uint64)
                self.rows.set_keys(first, first + count, keys)
            at += count
        if self.rows:  # records with a delay, for example, may be refused
            self._refuse(entry)

    def _refuse(self, entry: LookEntry) -> None:
        """Finish records that had a row before the look, and that the filter refuses.

        Records that were delivered stay: an earlier filter let them in.
        """
        begin = entry.start
        for first, count in (*entry.entered, (entry.end, 0)):
            for rows in list(self.rows.spans(begin, first)):
                refused = rows["offset"][rows["count"] == 0]
                for run in runs_of((b"", 0), refused, np.zeros(len(refused), np.int64)):
                    self.finish(run)
            begin = first + count

    def see(self, run: Run) -> None:
        """Make sure that each record of a run has a row."""
        known = self.rows.offsets(run.first, run.end) if self.rows else _NONE
        if len(known) == run.rows:
            return
        fresh = np.arange(run.first, run.end)
        if len(known):
            fresh = np.setdiff1d(fresh, known, assume_unique=True)
            for piece in np.split(fresh, np.flatnonzero(np.diff(fresh) > 1) + 1):
                self.rows.put(new_rows(piece))
        else:
            self.rows.put(new_rows(fresh))

    def lock(self, runs: Sequence[Run], until: int) -> None:
        """Lock the records of these runs until a time, for the deliveries that they name."""
        known = sum(run.end <= self.next for run in runs)
        if known < _MANY or not self._lock_known(runs[:known], until):
            known = 0
        for run in runs[known:]:
            self._lock_run(run, until)

    def _lock_known(self, runs: Sequence[Run], until: int) -> bool:
        """Lock all these records at once; False, without a change, if some have no row."""
        offsets, counts = expanded(runs)
        is_known = self.rows.change_known(offsets, at=until, state=LOCKED, count=counts)
        if is_known:
            self._go_on(self.next)
        return is_known

    def _lock_run(self, run: Run, until: int) -> None:
        locked = {"at": until, "state": LOCKED, "count": run.delivery}
        if run.first > self.rows.last:  # the usual case: the next records of the backlog
            self.rows.append(range(run.first, run.end), **locked)
        else:
            self.see(run)
            self.rows.change(run.first, run.end, **locked)
        self._go_on(max(self.next, self._seen_up_to(run)))

    def _seen_up_to(self, run: Run) -> int:
        """Where the backlog begins after a delivery of this run, since it is taken in order."""
        return run.end if times_of(run.delivery) == 1 and self._next_is_in(run) else self.next

    def _next_is_in(self, run: Run) -> bool:
        return run.first <= self.next < run.end

    def _go_on(self, offset: int) -> None:
        hops = self.rows and not self._looked
        self.next = self.rows.end_of_run(offset) if hops else offset

    def wait(self, run: Run, at: int) -> None:
        """Delay the next delivery of a run's records until a time."""
        self.rows.change(run.first, run.end, at=at, state=WAITING)

    def extend(self, run: Run, at: int) -> None:
        """Extend the lock of a run's records until a time."""
        self.rows.change(run.first, run.end, at=at)

    def release(self, run: Run) -> None:
        """Undo the delivery of a run's records."""
        before = run.delivery - 1 if times_of(run.delivery) > 1 else 0
        self.rows.change(run.first, run.end, at=0, state=FREE, count=before)

    def finish(self, run: Run) -> int:
        """Finish the records of a run; returns how many were unfinished."""
        return self.rows.finish(run.first, run.end, below=self.next)

    def recall(self, run: Run) -> int:
        """Finish records that were not delivered; returns how many were unfinished."""
        if run.first == self.next and not self._looked and next(self.spans(run), None) is None:
            self._go_on(run.end)  # no row for each: a gap of a repair may have billions of offsets
            return run.rows
        self.see(run)
        self._go_on(self.next)
        return self.finish(run)

    def drop_expired(self, now: int) -> int:
        """Finish unlocked expired records; returns how many."""
        if not self.rows.expire:
            return 0
        expired = self.rows.expired(now)
        for run in runs_of((b"", 0), expired, np.zeros(len(expired), np.int64)):
            self.finish(run)
        return len(expired)

    def trim(self, start: int) -> None:
        """Drop the records before the partition's new start."""
        lowest = self.rows.lowest()
        if lowest is not None and lowest < start:
            self.rows.finish(lowest, start, below=self.next)
        if self.next < start:
            self._go_on(start)

    def unfinished_in(self, start: int, end: int) -> Numbers:
        """The offsets of unfinished records in [start, end), which is not beyond `next`."""
        found = [rows["offset"][rows["state"] != GONE] for rows in self.rows.spans(start, end)]
        return np.concatenate([_NONE, *found])

    def done_below(self, end: int) -> int:
        """The offset, at most `end`, below which all records are finished."""
        lowest = self.rows.lowest()
        return min(self.next, end, self.next if lowest is None else lowest)


def tallied(rows: Array, now: int) -> dict[str, int]:
    """How many of some rows are ready, locked, delayed and expired."""
    over = are_over(rows, now)
    live = (rows["state"] != GONE) & ~over
    ahead = live & (rows["at"] > now)
    locked = int(np.count_nonzero(ahead & (rows["state"] == LOCKED)))
    return {
        "locked": locked,
        "delayed": int(np.count_nonzero(ahead)) - locked,
        "ready": int(np.count_nonzero(live)) - int(np.count_nonzero(ahead)),
        "expired": int(np.count_nonzero(over)),
    }
