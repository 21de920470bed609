"""Acknowledging: sends are finished once their commit is as durable as was asked for.

With fsync the acknowledger has a thread of its own. The next commit is then encoded and written
while this one is on its way to the disk, and one sync serves all commits written meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from queue import SimpleQueue

from kmq_spark.client.sending.committer import Committer
from kmq_spark.client.sending.pending import Pending
from kmq_spark.client.sending.written import Written
from kmq_storage.waking import Bell

_LOGGER = logging.getLogger(__name__)

#: Commits that are written and not acknowledged; while they are on their way, more gather.
_UNACKNOWLEDGED_MAX = 4


class Acknowledger:
    """Finishes commits in the order in which they were written."""

    def __init__(self, committer: Committer, pending: Pending, *, durable: bool) -> None:
        self._committer = committer
        self._pending = pending
        self._written: SimpleQueue[Written | None] = SimpleQueue()
        #: Rung when one of them is finished.
        self._room = Bell()
        #: Finished in callers' threads, where no callback may run.
        self._uncalled: deque[Written] = deque()
        self._thread: threading.Thread | None = None
        if durable:
            self._thread = threading.Thread(target=self._run, name="kmq-sync", daemon=True)
            pending.workers.add(self._thread)

    def start(self) -> None:
        """Begin to work."""
        if self._thread is not None:
            self._thread.start()

    def acknowledge(self, written: Written, *, here: bool = False) -> None:
        """Finish these sends once they are durable; waits while too many commits are on their way.

        With `here` they are finished in this thread and now, if nothing else is on its way.
        """
        if here and self._thread is not None:
            self._committer.make_durable(written)
        if here or self._thread is None:
            self._finish(written)
        else:
            while self._written.qsize() >= _UNACKNOWLEDGED_MAX:
                self._room.wait()  # the worker alone: a caller commits when nothing is on its way
            self._written.put(written)

    def _run(self) -> None:
        while (written := self._written.get()) is not None:
            self._room.ring()
            self._committer.make_durable(written)
            self._finish(written)

    def _finish(self, written: Written) -> None:
        written.finish()
        called = any(send.calls_back for send in written.sends)
        if called and threading.current_thread() not in self._pending.workers:
            self._uncalled.append(written)  # a callback was added just now
            self._pending.call_worker()
            return
        for send in written.sends if called else ():
            try:
                send.call_back()
            except BaseException:  # `sys.exit` in a callback must not end this thread
                _LOGGER.exception(
                    "a callback for topic %s raised what would end the producer's thread",
                    send.topic,
                )
        self._pending.finished(written.sends)

    def call_back(self) -> None:
        """Run the callbacks of what callers' threads finished. Worker only."""
        while self._uncalled:
            self._finish(self._uncalled.popleft())

    def end(self) -> None:
        """Let the thread end once everything is finished, also if it only begins."""
        self._written.put(None)

    def close(self) -> None:
        """Return when everything is finished."""
        if self._thread is not None:
            self.end()
            self._thread.join()
