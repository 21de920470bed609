"""Slips: pages on which receivers note finished records, which is faster than committing each.

A slip is a small mapped file of one receiver. It has a word for each record of one delivery, a word
before them that marks a takeover, and some words behind them that make several notes count at once.
Each word has check bits. A note is a store into shared memory, so it survives the death of its
process, but not that of the machine.

The commit that ends the use of a slip decides which notes count. After the lock ended, another
process may take the slip over: it announces this in a commit, then marks the slip, and then reads
the notes. The receiver looks for the mark after each note. So each note is read by the other
process, or the receiver sees the mark and asks the log whether the note was read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
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
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.slip import Slip
from kmq_storage.log.state.queues.snapshot import copied
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.files import Files

#: How long a file is used (seconds), long before collection takes it for a leftover.
_USED = limits.ORPHAN_AGE / 8
_TAKEN_OVER = 0
_LOGGER = logging.getLogger(__name__)


def boot_of(files: Files) -> int:
    """A number that changes with every boot of the machine, which may have lost notes."""
    return checksum(_disk(files).boot_id().encode())


def _disk(files: Files) -> Disk:
    """The files as a disk; there are no slips in buckets, whose processes share no memory."""
    return files  # type: ignore[return-value]


class SlipPage:
    """The words of one slip (`format.slip_words`)."""

    def __init__(self, files: Files, slip_id: bytes) -> None:
        self.id = slip_id
        self._words = _disk(files).open_words(paths.slip_file(slip_id), WORDS)
        self._seals = SlipWords(slip_id)

    def take_over(self, slip: Slip) -> None:
        """Mark the slip as taken over, so that its receiver doubts later notes."""
        (word,) = self._seals.sealed_at([_TAKEN_OVER], slip.round)
        self._words.store(_TAKEN_OVER, slip.round if slip.boot is None else word)
        self._words.wake(_TAKEN_OVER)

    def notes(self, slip: Slip) -> Notes:
        """The notes of one use of the slip."""
        places = self._words.loaded(1, slip.rows)
        groups = self._words.loaded(1 + PLACES, GROUPS)
        read = plain_notes if slip.boot is None else self._seals.notes
        return read(slip.round, places, groups)


class OwnPage(SlipPage):
    """The slip of a receiver in this process, which reuses it."""

    def __init__(self, log: CommitLog) -> None:
        super().__init__(log.files, log.environment.new_uuid().bytes)
        self._files = log.files
        self.boot = boot_of(log.files)
        self._monotonic = log.environment.monotonic
        self._since = self._monotonic()
        self._round = 0
        self._is_damaged = False
        #: For each place, the word that notes it alone in this round.
        self._singles: list[int] = []
        blank = self._seals.sealed(slice(None), 0)
        for index, word in enumerate(blank):
            self._words.store(index, word)
        self._not_taken_over = blank[_TAKEN_OVER]

    def next_round(self) -> int:
        """The number of the next use."""
        self._round += 1
        return self._round

    def begin(self, slip: Slip) -> None:
        """Begin a use of the slip: later notes belong to it."""
        self._singles = self._seals.sealed(slice(1, 1 + slip.rows), slip.round)

    def note(self, places: Sequence[int], number: int, group: int) -> bool:
        """Note the records at some places as done; returns whether the note counts for certain.

        Several places are noted atomically, also when the process is killed. They need a `group`, a
        number from 1 on that was not used in this round yet.
        """
        words = self._words
        if len(places) == 1:
            words.store(places[0] + 1, self._singles[places[0]])
        else:
            indexes = [place + 1 for place in places]
            sealed = self._seals.sealed_at(indexes, number, group)
            for index, word in zip(indexes, sealed, strict=True):
                words.store(index, word)
            words.wake(_TAKEN_OVER)  # no thread waits; the call is a barrier between the stores
            (word,) = self._seals.sealed_at([PLACES + group], number, len(places))
            words.store(PLACES + group, word)
        words.wake(_TAKEN_OVER)
        return words.load(_TAKEN_OVER) == self._not_taken_over

    def noted_among(self, places: set[int], slip: Slip) -> set[int]:
        """Those of some places whose records were noted as done."""
        load, number = self._words.load, slip.round
        of_round = [at for at in places if load(at + 1) >> NUMBER_BITS & ROUNDS - 1 == number]
        return places & self.notes(slip).done if of_round else set()

    def notes(self, slip: Slip) -> Notes:
        """See `SlipPage.notes`; quick if all records of the current round were noted alone."""
        if slip.round == self._round and self._words.loaded(1, slip.rows) == self._singles:
            return Notes(set(range(slip.rows)), set())
        found = super().notes(slip)
        self._is_damaged |= bool(found.unproven)
        return found

    @property
    def is_used_up(self) -> bool:
        """Whether the next use needs another slip."""
        old = self._monotonic() - self._since > _USED
        return old or self._is_damaged or self._round + 1 >= ROUNDS

    def discard(self) -> None:
        """Delete the slip, whose notes are not needed any more."""
        with suppress(OSError):  # a leftover is collected later
            self._files.remove(paths.slip_file(self.id))


def picked(runs: Sequence[Run], places: set[int]) -> list[Run]:
    """The records of runs at some places, which are numbered through all runs."""
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


def places_of(runs: Iterable[Run], records: Iterable[tuple[Key, int]]) -> set[int]:
    """The places of records in runs, numbered through all of them."""
    found: set[int] = set()
    here, first, end, before = None, 0, 0, 0
    for key, offset in records:
        if not first <= offset < end or key != here:  # most are in the same run as the last one
            run, before = _run_of(runs, key, offset)
            here, first, end = key, run.first, run.end
        found.add(before + offset - first)
    return found


def _run_of(runs: Iterable[Run], key: Key, offset: int) -> tuple[Run, int]:
    """The run that has a record, and how many records are in those before it."""
    before = 0
    for run in runs:
        if run[:2] == key and 0 <= offset - run.first < run.rows:
            return run, before
        before += run.rows
    raise KeyError(offset)


def ending(
    log: CommitLog, queue_id: bytes, page: SlipPage, slip: Slip, by: int = BY_OWNER
) -> SlipAnswerEntry:
    """The entry that commits the notes of a slip on which no more is noted."""
    runs = [] if by == TAKING_OVER else noted(page, slip)
    return SlipAnswerEntry(queue_id, ACK, log.now_us(), 0, tuple(runs), page.id, slip.round, by)


def noted(page: SlipPage, slip: Slip) -> list[Run]:
    """The records that were noted as done; damaged notes are logged as a warning.

    A damaged note never counts, so its record is delivered again.
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
    """Apply uncommitted notes of receivers to a copy of a queue's state."""
    for slip_id, slip in list(queue.slips.items()):
        runs = tuple(noted(SlipPage(files, slip_id), slip))
        ids = (slip_id, slip.round, TAKEN_OVER)
        queue.apply_slip(SlipAnswerEntry(queue.id, ACK, 0, 0, runs, *ids))


def with_notes(log: CommitLog, queue: Queue) -> Queue:
    """The queue with what receivers noted whose locks ended, as those that were killed left it.

    A writer commits the notes; a process that may only read tells them of a copy.
    """
    if not queue.slips or not queue.ended_slips(log.now_us()):
        return queue
    take_over_ended(log, queue)
    if log.files.read_only:
        queue = copied(queue)
        tell_noted(log.files, queue)
    return queue


def take_over_ended(log: CommitLog, queue: Queue) -> None:
    """Commit the notes of slips whose locks ended, so that the other records can be delivered."""
    if not queue.slips or log.files.read_only:
        return
    for slip_id, slip in queue.ended_slips(log.now_us()):
        # Another process was faster, or deleted the queue.
        with suppress(ConflictError, NotFoundError):
            take_over(log, queue.id, SlipPage(log.files, slip_id), slip)
        log.refresh()


def take_over_all(log: CommitLog, queues: Iterable[Queue], topic_ids: Collection[bytes]) -> None:
    """End all slips with records of topics, so that later answers for these are refused."""
    slips = [(queue.id, *each) for queue in list(queues) for each in list(queue.slips.items())]
    for queue_id, slip_id, slip in slips:
        if any(run.topic_id in topic_ids for run in slip.runs):
            with suppress(ConflictError, NotFoundError):  # another process ended it
                take_over(log, queue_id, SlipPage(log.files, slip_id), slip)
            log.refresh()


def disown_all(log: CommitLog, queue: Queue) -> None:
    """Have the receivers of a deleted queue ask the log whether their later notes count."""
    for slip_id, slip in list(queue.slips.items()):
        SlipPage(log.files, slip_id).take_over(slip)


def take_over(log: CommitLog, queue_id: bytes, page: SlipPage, slip: Slip) -> None:
    """Commit the notes of another process's slip, which that process then never uses again.

    ConflictError when another process does so.
    """
    if not slip.taken:  # announced first, so that this becomes the slip's last use
        log.commit([Unit((ending(log, queue_id, page, slip, TAKING_OVER),))])
    page.take_over(slip)
    log.commit([Unit((ending(log, queue_id, page, slip, TAKEN_OVER),))])


def counted(log: CommitLog, page: SlipPage, slip: Slip, places: set[int], since: int) -> bool:
    """Whether notes made during a takeover count, by the commits from LSN `since` on."""
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
