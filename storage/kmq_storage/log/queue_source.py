"""One partition as a queue reads it: what nobody had yet, and the rows of what is not finished.

Pure. Records from `next` on have no row unless there is something to be said of them (a delay, for
example); they are had in order, so that a long backlog costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kmq_storage.arrays import Array, Numbers
from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import LookEntry, Run
from kmq_storage.log.queue_busy import Busy
from kmq_storage.log.queue_rows import (
    FREE,
    GONE,
    LOCKED,
    NEVER,
    PRIORITY,
    WAITING,
    Rows,
    are_over,
    new_rows,
)
from kmq_storage.log.queue_runs import expanded, runs_of

_NONE = np.zeros(0, np.int64)
#: So many runs are looked up at once, fewer one by one.
_MANY = 8


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants to have now."""

    most: int
    #: UTC us.
    now: int
    #: Records that were handed out so often are not handed out again.
    deliveries_max: int
    priority: int = PRIORITY
    #: Whether only records are had that were looked at.
    looked: bool = False
    #: Keys of which somebody has a record, or one waits: theirs are not had.
    busy: Busy | None = None


class Source:
    """What a queue did with the records of one partition."""

    __slots__ = ("_looked", "_unnumbered", "next", "rows")

    def __init__(self, start: int, *, looked: bool, unnumbered: int) -> None:
        #: From here on nobody had a record that has no row, or looked at one.
        self.next = start
        #: Whether every record has to be looked at, whatever else is to be said of it.
        self._looked = looked
        #: What the first delivery of a record is counted on from.
        self._unnumbered = unnumbered
        self.rows = Rows()

    # --- looking ------------------------------------------------------------------------

    def unseen(self, end: int) -> int:
        """How many records up to an offset nobody had yet, and nothing is to be said of."""
        ahead = len(self.rows.offsets(self.next, NEVER)) if self.rows else 0
        return max(end - self.next - ahead, 0)

    def held(self, end: int, now: int) -> int:
        """How many records up to an offset are not finished, without those whose time is over."""
        return self.rows.live + self.unseen(end) - len(self.rows.expired(now))

    def take(self, key: Key, span: tuple[int, int], wish: Wish) -> list[Run]:
        """The first records that can be had, of those with offsets in a span, as runs."""
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
        """Whether rows have to be looked at: some can be had, or stand behind an offset."""
        rows = self.rows
        return bool(rows) and (rows.first_at() <= now or rows.last >= begin)

    def _due(self, start: int, wish: Wish) -> tuple[Numbers, Numbers]:
        """Numbers of rows that can be had, and how often they were."""
        offsets, counts, found = [_NONE], [_NONE], 0
        for rows in self.rows.due(wish.now):
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
            offsets.append(rows["offset"][places])
            counts.append(rows["count"][places])
            found += len(offsets[-1])
            if found >= wish.most:
                break
        return np.concatenate(offsets), np.concatenate(counts)

    def _unseen_offsets(self, begin: int, end: int, most: int) -> Numbers:
        """The first offsets from one on that have no row."""
        found, count = [_NONE], 0
        while begin < end and count < most:
            behind = min(end, begin + 2 * most)
            here = np.arange(begin, behind)
            here = np.setdiff1d(here, self.rows.offsets(begin, behind), assume_unique=True)
            found.append(here[: most - count])
            count += len(found[-1])
            begin = behind
        return np.concatenate(found)

    def unseen_offsets(self, end: int) -> Numbers:
        """The records up to an offset that nobody had yet, and nothing is to be said of."""
        return self._unseen_offsets(self.next, end, end)

    def unfinished(self, unseen: Numbers, now: int) -> Array:
        """A row for each record that is not finished, in order; `unseen` ones have none yet."""
        rows = self.rows.all()
        rows = rows[(rows["state"] != GONE) & ~are_over(rows, now)]
        rows = np.concatenate([rows, new_rows(unseen)])
        return rows[np.argsort(rows["offset"], kind="stable")]

    def looked_and_due(self, now: int, deliveries_max: int) -> int:
        """How many records that were looked at somebody may get, and wait for no time."""
        found = 0
        for rows in self.rows.due(now):
            good = (rows["offset"] < self.next) & (rows["expires"] > now)
            good &= times_of(rows["count"]) < deliveries_max
            found += int(np.count_nonzero(good))
        return found

    def exhausted(self, key: Key, now: int, deliveries_max: int) -> list[Run]:
        """Records that can be had, but were handed out too often already."""
        runs: list[Run] = []
        for rows in self.rows.due(now):
            much = rows[times_of(rows["count"]) >= deliveries_max]
            runs += runs_of(key, much["offset"], much["count"])
        return runs

    def free_in(self, key: Key, start: int, end: int, now: int) -> list[Run]:
        """Records of a range that are not finished and that nobody holds, had by somebody or not.

        Where records are looked at before, those that nobody looked at are not among them.
        """
        pieces = list(self.rows.spans(start, end)) if self.rows else []
        rows = np.concatenate([new_rows(_NONE), *pieces])
        free = rows[(rows["state"] != GONE) & ((rows["state"] != LOCKED) | (rows["at"] <= now))]
        first = end if self._looked else max(start, self.next)
        taken = rows["offset"][rows["offset"] >= first].tolist()
        between = zip([first, *(offset + 1 for offset in taken)], [*taken, end], strict=True)
        unseen = (
            Run(*key, low, high - low, self._unnumbered) for low, high in between if low < high
        )
        # Apart: a run is free as rows or as what has none, not as a mixture.
        return [*runs_of(key, free["offset"], free["count"]), *unseen]

    def spans(self, run: Run) -> Iterator[Array]:
        """The rows of a run."""
        return self.rows.spans(run.first, run.first + run.rows)

    def first_expiry(self, run: Run) -> int:
        """When the first record of a run expires, UTC us."""
        return min((int(rows["expires"].min()) for rows in self.spans(run)), default=NEVER)

    def are_held(self, run: Run, now: int) -> bool:
        """Whether all records of a run are held by the delivery that it names."""
        found = 0
        for rows in self.spans(run):
            held = (rows["state"] == LOCKED) & (rows["count"] == run.delivery) & (rows["at"] > now)
            if not held.all():
                return False
            found += len(rows)
        return found == run.rows

    def late_of(self, run: Run, now: int) -> Iterable[Run]:
        """The records of a run that are not held by the delivery that it names."""
        held = [_NONE]
        for rows in self.spans(run):
            good = (rows["state"] == LOCKED) & (rows["count"] == run.delivery) & (rows["at"] > now)
            held.append(rows["offset"][good])
        offsets = np.setdiff1d(np.arange(run.first, run.first + run.rows), np.concatenate(held))
        return runs_of(run[:2], offsets, np.full(len(offsets), run.delivery))

    def held_of(self, run: Run, now: int = 0) -> list[Run]:
        """The records of a run that are held by the delivery that it names, or were until now."""
        found: list[Run] = []
        for rows in self.spans(run):
            own = (rows["state"] == LOCKED) & (rows["count"] == run.delivery)
            held = own & (rows["at"] > now)
            if len(held) == run.rows and held.all():  # mostly
                return [run]
            offsets = rows["offset"][held]
            found += runs_of(run[:2], offsets, np.full(len(offsets), run.delivery, np.int64))
        return found

    def are_free(self, run: Run, now: int) -> bool:
        """Whether nobody holds a record of a run, nor had it since the delivery that it names."""
        found = 0
        for rows in self.spans(run):
            free = (
                (rows["state"] != GONE)
                & (rows["count"] == run.delivery)
                & ((rows["state"] != LOCKED) | (rows["at"] <= now))
            )
            if not free.all():
                return False
            found += len(rows)
        unseen = run.delivery == self._unnumbered and run.first >= self.next
        return found == run.rows or (unseen and found == 0)

    # --- applying -----------------------------------------------------------------------

    def put(self, rows: Array) -> None:
        """Something is to be said of these records, which nobody had yet."""
        self.rows.put(rows)
        self._go_on(self.next)

    def look(self, entry: LookEntry) -> None:
        """Somebody looked at records: those that enter have a row from now on."""
        self.next = entry.end
        at = 0
        for first, count in entry.entered:
            run = Run(b"", 0, first, count, 0)
            self.see(run)
            if entry.keys:
                keys = np.array(entry.keys[at : at + count], np.uint64)
                self.rows.set_keys(first, first + count, keys)
            at += count
        if self.rows:  # what was sent with a delay, say, and does not enter
            self._refuse(entry)

    def _refuse(self, entry: LookEntry) -> None:
        """Records that were said something of before, and that a filter refuses.

        Who was handed out already entered under another one, and stays.
        """
        begin = entry.start
        for first, count in (*entry.entered, (entry.end, 0)):
            for rows in list(self.rows.spans(begin, first)):
                refused = rows["offset"][rows["count"] == 0]
                for run in runs_of((b"", 0), refused, np.zeros(len(refused), np.int64)):
                    self.finish(run)
            begin = first + count

    def see(self, run: Run) -> None:
        """Have a row for each record of a run."""
        end = run.first + run.rows
        known = self.rows.offsets(run.first, end) if self.rows else _NONE
        if len(known) == run.rows:
            return
        fresh = np.arange(run.first, end)
        if len(known):
            fresh = np.setdiff1d(fresh, known, assume_unique=True)
            for piece in np.split(fresh, np.flatnonzero(np.diff(fresh) > 1) + 1):
                self.rows.put(new_rows(piece))
        else:
            self.rows.put(new_rows(fresh))

    def lock(self, runs: Sequence[Run], until: int) -> None:
        """The records of these runs were handed out."""
        known = sum(run.first + run.rows <= self.next for run in runs)
        if known < _MANY or not self._lock_known(runs[:known], until):
            known = 0
        for run in runs[known:]:
            self._lock_run(run, until)

    def _lock_known(self, runs: Sequence[Run], until: int) -> bool:
        """The same at once where all these records have a row; False, and nothing, if not."""
        offsets, counts = expanded(runs)
        is_known = self.rows.change_known(offsets, at=until, state=LOCKED, count=counts)
        if is_known:
            self._go_on(self.next)
        return is_known

    def _lock_run(self, run: Run, until: int) -> None:
        end = run.first + run.rows
        locked = {"at": until, "state": LOCKED, "count": run.delivery}
        if run.first > self.rows.last:  # mostly: the next ones that nobody had
            self.rows.append(range(run.first, end), **locked)
        else:
            self.see(run)
            self.rows.change(run.first, end, **locked)
        self._go_on(max(self.next, self._seen_up_to(run)))

    def _seen_up_to(self, run: Run) -> int:
        """Where nobody had records after these: they were taken in order, where unseen."""
        end = run.first + run.rows
        return end if times_of(run.delivery) == 1 and self._next_is_in(run) else self.next

    def _next_is_in(self, run: Run) -> bool:
        return run.first <= self.next < run.first + run.rows

    def _go_on(self, offset: int) -> None:
        hops = self.rows and not self._looked
        self.next = self.rows.end_of_run(offset) if hops else offset

    def wait(self, run: Run, at: int) -> None:
        """The records of a run come again at an instant."""
        self.rows.change(run.first, run.first + run.rows, at=at, state=WAITING)

    def extend(self, run: Run, at: int) -> None:
        """The records of a run are held until an instant."""
        self.rows.change(run.first, run.first + run.rows, at=at)

    def release(self, run: Run) -> None:
        """The records of a run were not handed out after all."""
        end = run.first + run.rows
        before = run.delivery - 1 if times_of(run.delivery) > 1 else 0
        self.rows.change(run.first, end, at=0, state=FREE, count=before)

    def finish(self, run: Run) -> int:
        """The records of a run are done; how many were not before."""
        return self.rows.finish(run.first, run.first + run.rows, below=self.next)

    def recall(self, run: Run) -> int:
        """Records that nobody had are done."""
        self.see(run)
        self._go_on(self.next)
        return self.finish(run)

    def drop_expired(self, now: int) -> int:
        """Forget records whose time is over, unless somebody holds them; how many."""
        expired = self.rows.expired(now)
        for run in runs_of((b"", 0), expired, np.zeros(len(expired), np.int64)):
            self.finish(run)
        return len(expired)

    def trim(self, start: int) -> None:
        """The records before an offset are not there any more."""
        lowest = self.rows.lowest()
        if lowest is not None and lowest < start:
            self.rows.finish(lowest, start, below=self.next)
        if self.next < start:
            self._go_on(start)

    def done_below(self, end: int) -> int:
        """All records below this offset are done."""
        lowest = self.rows.lowest()
        return min(self.next, end, self.next if lowest is None else lowest)


def tallied(rows: Array, now: int) -> dict[str, int]:
    """How many of some rows are ready, locked, delayed and too old."""
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
