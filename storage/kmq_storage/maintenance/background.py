"""Maintenance in a background thread of writing processes, so that no daemon is needed.

A kernel lock lets one process at a time maintain a store. It only saves work: two at once would do
no harm.
"""

from __future__ import annotations

import logging
import threading

from kmq_storage import limits, paths
from kmq_storage.errors import ClosedError, KmqError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.last_look import LastLook
from kmq_storage.objects.files import held_if_free
from kmq_storage.objects.fork import reopen_in_child
from kmq_storage.waking import Flag

_LOGGER = logging.getLogger(__name__)
#: Seconds that closing waits for the current step; a longer step ends by itself later.
_PATIENCE = 2.0

#: While nothing is written, maintenance looks for due work only in every sixth round.
_IDLE_ROUNDS = 6

#: Intervals between the rounds of a process that only consumes. Those that send come first: they
#: make most of the work, and have less to lose by it than one that waits for records.
CONSUMER_INTERVALS = 6


class BackgroundMaintenance:
    """Maintains a store while this handle writes to it."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._stopped = Flag()
        self._thread: threading.Thread | None = None
        self._seen = 0
        #: Intervals between two rounds.
        self._every = CONSUMER_INTERVALS
        self._last = LastLook()
        reopen_in_child(self._after_fork)

    def start(self, *, every: int = 1) -> None:
        """Start the thread, unless it runs; `every`: intervals between two rounds, at most."""
        self._every = min(self._every, every)
        if self._thread is None and not self._stopped.is_set():
            thread = threading.Thread(target=self._run, name="kmq-maintenance", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the next producer tries again
                _LOGGER.warning("nothing maintains %s: %s", self._log.files.url, error)
                return
            self._thread = thread

    def _after_fork(self) -> None:
        """Forget the parent's thread; the child's next producer starts its own."""
        self._thread = None

    def _run(self) -> None:
        idle = waited = 0
        while not self._stopped.wait(limits.MAINTAIN_INTERVAL):
            if (waited := waited + 1) < self._every:
                continue
            waited = 0
            try:
                lsn = self._log.known_state.lsn
                idle = idle + 1 if lsn == self._seen else 0
                if idle % _IDLE_ROUNDS:  # without commits, less becomes due
                    continue
                self._seen = lsn
                self._maintain()
            except ClosedError:
                return
            except (KmqError, OSError) as error:
                _LOGGER.warning("maintenance of %s: %s", self._log.files.url, error)

    def _maintain(self) -> None:
        from kmq_storage.maintenance.maintain import maintain  # only when needed
        from kmq_storage.maintenance.manner import Pace

        with held_if_free(self._log.files.open_lock(paths.MAINTAIN_LOCK)) as alone:
            if alone:  # else another process maintains the store
                pace = Pace(self._log, self._stopped.wait)
                maintain(self._log, self._last, rest=pace.rest)

    def close(self) -> None:
        """Stop the thread and wait for it a little; the closed log ends a longer step."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)
