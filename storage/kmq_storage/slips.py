"""Slips: pages on which receivers note what is done, faster than by commits.

A slip is a small mapped file of one receiver: a word for each record that it got at once, one
before them that says that somebody took over, and some behind them that make several notes count
at once. Each proves itself. A note is a store into shared memory, so it survives
the death of its process, though not that of the machine. What counts is what the commit says that
ends the use of a slip. Whoever takes over says so in a commit, then on the slip, and then reads it;
who notes looks afterwards whether that was said on the slip. So each note is read, or its author
asks the log whether it was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby

from kmq_storage import limits, paths
from kmq_storage.errors import ConflictError, NotFoundError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import (
    ACK,
    BY_OWNER,
    TAKEN_OVER,
    TAKING_OVER,
    Run,
    SlipAnswerEntry,
)
from kmq_storage.format.slip_words import (
    GROUPS,
    NUMBER_BITS,
    PLACES,
    ROUNDS,
    WORDS,
    Notes,
    SlipWords,
    plain_notes,
)
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.queue_state import Queue, Slip
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.files import Files

#: So long a file is used (seconds): long before anybody takes it for one that was left.
_USED = limits.ORPHAN_AGE / 8
_TAKEN_OVER = 0
_LOGGER = logging.getLogger(__name__)


def boot_of(files: Files) -> int:
    """Differs after every start of the machine, which may have lost what was noted before."""
    return checksum(_disk(files).boot_id().encode())


def _disk(files: Files) -> Disk:
    """In buckets there are no slips: who shares memory shares a disk."""
    return files  # type: ignore[return-value]


class SlipPage:
    """The words of one slip, which prove themselves (`format.slip_words`)."""

    def __init__(self, files: Files, slip_id: bytes) -> None:
        self.id = slip_id
        self._words = _disk(files).open_words(paths.slip_file(slip_id), WORDS)
        self._seals = SlipWords(slip_id)

    def take_over(self, slip: Slip) -> None:
        """From now on who notes something knows that it may not count."""
        (word,) = self._seals.sealed_at([_TAKEN_OVER], slip.round)
        self._words.store(_TAKEN_OVER, slip.round if slip.boot is None else word)
        self._words.wake(_TAKEN_OVER)

    def notes(self, slip: Slip) -> Notes:
        """What was noted of the records of a round."""
        places = self._words.loaded(1, slip.rows)
        groups = self._words.loaded(1 + PLACES, GROUPS)
        read = plain_notes if slip.boot is None else self._seals.notes
        return read(slip.round, places, groups)


class OwnPage(SlipPage):
    """The slip of a receiver, which uses it again and again."""

    def __init__(self, log: CommitLog) -> None:
        super().__init__(log.files, log.environment.new_uuid().bytes)
        self._files = log.files
        self.boot = boot_of(log.files)
        self._monotonic = log.environment.monotonic
        self._since = self._monotonic()
        self._round = 0
        self._is_damaged = False
        #: The words of the round's places, each noted alone.
        self._singles: list[int] = []
        blank = self._seals.sealed(slice(None), 0)
        for index, word in enumerate(blank):
            self._words.store(index, word)
        self._not_taken_over = blank[_TAKEN_OVER]

    def next_round(self) -> int:
        """The number of its next use."""
        self._round += 1
        return self._round

    def begin(self, slip: Slip) -> None:
        """From now on what is noted is of this round."""
        self._singles = self._seals.sealed(slice(1, 1 + slip.rows), slip.round)

    def note(self, places: Sequence[int], number: int, group: int) -> bool:
        """The records at some places are done, all or none; whether that counts for sure.

        `group`: one from 1 on that was not used in this round; for one place it is not. Killed
        between two stores, it has noted nothing yet, or all.
        """
        words = self._words
        if len(places) == 1:
            words.store(places[0] + 1, self._singles[places[0]])
        else:
            indexes = [place + 1 for place in places]
            sealed = self._seals.sealed_at(indexes, number, group)
            for index, word in zip(indexes, sealed, strict=True):
                words.store(index, word)
            words.wake(_TAKEN_OVER)  # nobody waits: the call keeps what is before it before it
            (word,) = self._seals.sealed_at([PLACES + group], number, len(places))
            words.store(PLACES + group, word)
        words.wake(_TAKEN_OVER)
        return words.load(_TAKEN_OVER) == self._not_taken_over

    def has(self, place: int, slip: Slip) -> bool:
        """Whether the record at a place was noted."""
        if self._words.load(place + 1) >> NUMBER_BITS & ROUNDS - 1 != slip.round:
            return False
        return place in self.notes(slip).done

    def notes(self, slip: Slip) -> Notes:
        """What was noted of the records of a round; mostly all, one by one."""
        if slip.round == self._round and self._words.loaded(1, slip.rows) == self._singles:
            return Notes(set(range(slip.rows)), set())
        found = super().notes(slip)
        self._is_damaged |= bool(found.unproven)
        return found

    @property
    def is_used_up(self) -> bool:
        """Whether another one has to be taken for the next use."""
        old = self._monotonic() - self._since > _USED
        return old or self._is_damaged or self._round + 1 >= ROUNDS

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
    log: CommitLog, queue_id: bytes, page: SlipPage, slip: Slip, by: int = BY_OWNER
) -> SlipAnswerEntry:
    """What is to be committed of a slip that nobody notes anything on any more."""
    runs = [] if by == TAKING_OVER else noted(page, slip)
    return SlipAnswerEntry(queue_id, ACK, log.now_us(), 0, tuple(runs), page.id, slip.round, by)


def noted(page: SlipPage, slip: Slip) -> list[Run]:
    """The records of a round that are provably done; a warning tells of those nobody can tell of.

    They come again: a note that was damaged never counts.
    """
    notes = page.notes(slip)
    if notes.unproven:
        _LOGGER.warning(
            "%s: the notes of %d records can't be proven, so they come again, though some may "
            "have been acknowledged",
            paths.slip_file(page.id),
            len(notes.unproven),
        )
    return picked(slip.runs, notes.done)


def tell_noted(files: Files, queue: Queue) -> None:
    """Have a copy of a queue's state say what receivers noted and nobody committed yet."""
    for slip_id, slip in list(queue.slips.items()):
        runs = tuple(noted(SlipPage(files, slip_id), slip))
        ids = (slip_id, slip.round, TAKEN_OVER)
        queue.apply_slip(SlipAnswerEntry(queue.id, ACK, 0, 0, runs, *ids))


def take_over_ended(log: CommitLog, queue: Queue) -> None:
    """Commit what was noted of records whose lock ended, so that others may get the rest."""
    if not queue.slips or log.files.read_only:
        return
    for slip_id, slip in queue.ended_slips(log.now_us()):
        with suppress(ConflictError, NotFoundError):  # others were faster, or deleted the queue
            take_over(log, queue.id, SlipPage(log.files, slip_id), slip)
        log.refresh()


def take_over(log: CommitLog, queue_id: bytes, page: SlipPage, slip: Slip) -> None:
    """Commit what is noted on a slip, which its receiver uses never again.

    ConflictError when somebody else does so.
    """
    if not slip.taken:  # first, so that this is the last use of the slip
        log.commit([Unit((ending(log, queue_id, page, slip, TAKING_OVER),))])
    page.take_over(slip)
    log.commit([Unit((ending(log, queue_id, page, slip, TAKEN_OVER),))])


def counted(log: CommitLog, page: SlipPage, slip: Slip, places: set[int], since: int) -> bool:
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
