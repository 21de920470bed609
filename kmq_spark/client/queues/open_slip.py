"""An open slip: a receiver notes there which of the records that it acquired are acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from kmq_spark.errors import ConflictError, KmqError, NotFoundError
from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import SlipAnswerEntry
from kmq_storage.format.slip_words import GROUPS
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.late_answers import names_in, too_late
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.slip import Slip
from kmq_storage.queues.slips import OwnPage, counted, ending, picked, places_of, take_over


class OpenSlip:
    """Records that were acquired together, until a commit says which of them are finished."""

    def __init__(self, log: CommitLog, queue: Queue, page: OwnPage, slip: Slip, since: int) -> None:
        self.page = page
        self._log = log
        self._queue_id, self._queue_name = queue.id, queue.name
        self._slip = slip
        #: An LSN before that of its commit.
        self._since = since
        #: The highest delivery count among them.
        self.tries = max((times_of(run.delivery) for run in slip.runs), default=0)
        self._changing = threading.Lock()
        self._ended = False
        #: How often several were noted together.
        self._groups = 0
        #: The places of records that are answered by commits.
        self._others: set[int] = set()
        #: The places of notes that don't count, as somebody had taken over.
        self._uncounted: set[int] = set()
        page.begin(slip)

    def note(self, records: Sequence[tuple[Key, int]]) -> bool:
        """Note that records are acknowledged, all or none; False when that takes a commit.

        LeaseExpiredError a second time.
        """
        slip, page = self._slip, self.page
        places = places_of(slip.runs, records)
        with self._changing:
            self._check_once(places)
            late = self._log.now_us() >= slip.until
            if late or self._ended or self._groups == GROUPS or not places.isdisjoint(self._others):
                return False
            self._groups += len(places) > 1
            counts = page.note(list(places), slip.round, self._groups)
        return counts or self._was_counted(places)

    def answer_by_commit(self, records: Sequence[tuple[Key, int]]) -> None:
        """Note nothing of these records any more: a commit says what becomes of them."""
        places = places_of(self._slip.runs, records)
        with self._changing:
            self._check_once(places)
            self._others |= places

    def _check_once(self, places: set[int]) -> None:
        if noted := self.page.noted_among(places, self._slip) - self._uncounted:
            raise self._too_late(noted)

    def _too_late(self, places: set[int]) -> KmqError:
        runs = picked(self._slip.runs, places)
        return too_late(self._queue_name, runs, names_in(self._log.state))

    def _was_counted(self, places: set[int]) -> bool:
        """Another process took over, or the slip is damaged: the commit that ends it decides.

        A note that it doesn't have is no answer yet: a commit then says whether one comes too late.
        """
        with self._changing:
            self._ended = True
        for taken in (False, True):  # the first one that says so
            with suppress(ConflictError, NotFoundError):
                slip = replace(self._slip, taken=taken)
                take_over(self._log, self._queue_id, self.page, slip)
        self._log.refresh()
        if counted(self._log, self.page, self._slip, places, self._since):
            return True
        with self._changing:
            self._uncounted |= places
        return False

    def end(self) -> SlipAnswerEntry:
        """Note nothing from now on; returns what is to be committed."""
        with self._changing:
            self._ended = True
        return ending(self._log, self._queue_id, self.page, self._slip)
