"""Slips: pages on which receivers note what is done, faster than by commits.

A slip is a small mapped file of one receiver: a word for each record that it got at once, one
before them that says that somebody took over, and some behind them that make several notes count
at once. A note is a store into shared memory, so it survives
the death of its process, though not that of the machine. What counts is what the commit says that
ends the use of a slip. Whoever takes over says so in a commit, then on the slip, and then reads it;
who notes looks afterwards whether that was said on the slip. So each note is read, or its author
asks the log whether it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby

from kmq_storage import limits, paths
from kmq_storage.errors import ConflictError
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import (
    ACK,
    BY_OWNER,
    TAKEN_OVER,
    TAKING_OVER,
    Run,
    SlipAnswerEntry,
)
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.queue_state import Queue, Slip
from kmq_storage.objects.disk import Disk

#: Records that are held at once with one slip, and how often several may be noted together; with
#: the first word 16 KiB.
PLACES, GROUPS = 1983, 64
#: So long a file is used (seconds): long before anybody takes it for one that was left.
_USED = limits.ORPHAN_AGE / 8
_TAKEN_OVER = 0
_GROUP_BITS = 8


class Page:
    """The words of one slip. A word that has the number of a use was set in it.

    A note has the number of its group below that, which counts once the group's word is set; 0 for
    one that stands alone.
    """

    def __init__(self, disk: Disk, slip_id: bytes) -> None:
        self.id = slip_id
        self._words = disk.open_words(paths.slip_file(slip_id), 1 + PLACES + GROUPS)

    def note(self, places: Sequence[int], number: int, group: int) -> bool:
        """The records at some places are done, all or none; whether that counts for sure.

        `group`: one from 1 on that was not used in this use of the slip; for one place it is not.
        """
        words, several = self._words, len(places) > 1
        word = number << _GROUP_BITS | (group if several else 0)
        for place in places:
            words.store(place + 1, word)
        if several:
            words.wake(_TAKEN_OVER)  # nobody waits: the call keeps what is before it before it
            words.store(PLACES + group, number)
        words.wake(_TAKEN_OVER)
        return words.load(_TAKEN_OVER) != number

    def take_over(self, number: int) -> None:
        """From now on who notes something knows that it may not count."""
        self._words.store(_TAKEN_OVER, number)
        self._words.wake(_TAKEN_OVER)

    def has(self, place: int, number: int) -> bool:
        """Whether the record at a place was noted."""
        load = self._words.load
        word = load(place + 1)
        if word >> _GROUP_BITS != number:
            return False
        group = word & ((1 << _GROUP_BITS) - 1)
        return not group or (group <= GROUPS and load(PLACES + group) == number)

    def noted(self, number: int, runs: Sequence[Run]) -> list[Run]:
        """The records of runs that were noted."""
        rows = sum(run.rows for run in runs)
        return picked(runs, {place for place in range(rows) if self.has(place, number)})


class OwnPage(Page):
    """The slip of a receiver, which uses it again and again."""

    def __init__(self, log: CommitLog) -> None:
        super().__init__(log.files, log.environment.new_uuid().bytes)  # type: ignore[arg-type]
        self._files = log.files
        self._monotonic = log.environment.monotonic
        self._since = self._monotonic()
        self._round = 0

    def next_round(self) -> int:
        """The number of its next use."""
        self._round += 1
        return self._round

    @property
    def is_old(self) -> bool:
        """Whether another one has to be taken for the next use."""
        return self._monotonic() - self._since > _USED

    def discard(self) -> None:
        """Nothing that is noted is needed any more."""
        with suppress(OSError):  # else `collect` does it
            self._files.remove(paths.slip_file(self.id))


def picked(runs: Sequence[Run], places: set[int]) -> list[Run]:
    """The records at some places of runs, counted through all of them."""
    if len(places) == sum(run.rows for run in runs):
        return list(runs)
    found: list[Run] = []
    at = 0
    for run in runs:
        inside = (n for n in range(run.rows) if at + n in places)
        for _, group in groupby(enumerate(inside), lambda pair: pair[1] - pair[0]):
            rows = [n for _, n in group]
            found.append(run._replace(first=run.first + rows[0], rows=len(rows)))
        at += run.rows
    return found


def place_of(runs: Iterable[Run], key: Key, offset: int) -> int:
    """Which of the records of runs this one is."""
    at = 0
    for run in runs:
        if run[:2] == key and 0 <= offset - run.first < run.rows:
            return at + offset - run.first
        at += run.rows
    raise KeyError(offset)


def ending(
    log: CommitLog, queue_id: bytes, page: Page, slip: Slip, by: int = BY_OWNER
) -> SlipAnswerEntry:
    """What is to be committed of a slip that nobody notes anything on any more."""
    runs = () if by == TAKING_OVER else page.noted(slip.round, slip.runs)
    return SlipAnswerEntry(queue_id, ACK, log.now_us(), 0, tuple(runs), page.id, slip.round, by)


def take_over_ended(log: CommitLog, queue: Queue) -> None:
    """Commit what was noted of records whose lock ended, so that others may get the rest."""
    if not queue.slips or log.files.read_only:
        return
    for slip_id, slip in queue.ended_slips(log.now_us()):
        page = Page(log.files, slip_id)  # type: ignore[arg-type]
        with suppress(ConflictError):  # its receiver was faster, or somebody else
            if not slip.taken:  # first, so that this is the last use of the slip
                log.commit([Unit((ending(log, queue.id, page, slip, TAKING_OVER),))])
            take_over(log, queue.id, page, slip)
        log.refresh()


def take_over(log: CommitLog, queue_id: bytes, page: Page, slip: Slip) -> None:
    """Commit what is noted on a slip that is to be taken over; ConflictError when it was."""
    page.take_over(slip.round)
    log.commit([Unit((ending(log, queue_id, page, slip, TAKEN_OVER),))])


def counted(log: CommitLog, page: Page, slip: Slip, places: set[int], since: int) -> bool:
    """Whether notes count that were made when somebody took over; `since`: an LSN before."""
    for commit in log.commits(since):
        for entry in commit.entries:
            if (
                isinstance(entry, SlipAnswerEntry)
                and (entry.slip_id, entry.round) == (page.id, slip.round)
                and entry.by != TAKING_OVER
            ):
                return _single(picked(slip.runs, places)) <= _single(entry.runs)
    return False


def _single(runs: Iterable[Run]) -> set[Run]:
    return {run._replace(first=run.first + n, rows=1) for run in runs for n in range(run.rows)}
