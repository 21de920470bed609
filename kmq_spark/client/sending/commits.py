"""Which thread commits what waits: the producer's own, or a caller that would only wait.

The producer's thread gathers what many calls send. A caller that waits at once for its send, or
sends now and then without lingering, commits itself: two changes of thread cost more than the
commit. One thread at a time takes and writes, so commits keep the order of the calls.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kmq_spark.client.sending.acknowledger import Acknowledger
from kmq_spark.client.sending.committer import Committer
from kmq_spark.client.sending.pending import Pending
from kmq_spark.client.sending.sends import Sends
from kmq_storage.log.commit_log import CommitLog


class Commits:
    """Commits what is pending, until that is closed and empty."""

    def __init__(
        self, log: CommitLog, pending: Pending, committer: Committer, *, durable: bool
    ) -> None:
        self._log = log
        self._pending = pending
        self._committer = committer
        self._acknowledger = Acknowledger(committer, pending, durable=durable)
        pending.commit_here = self._help
        self.worker = threading.Thread(target=self._run, name="kmq-producer", daemon=True)
        pending.workers.add(self.worker)

    def start(self) -> None:
        """Begin to work."""
        try:
            self._acknowledger.start()
            self.worker.start()
        except BaseException:  # raised by a signal, or as there are no more threads
            self._acknowledger.end()
            raise

    def _run(self) -> None:
        open_still = True
        while open_still:
            open_still = self._pending.wait()
            left, taken = self._pending.take()
            if left:
                self._write(left, again=True)
            self._acknowledger.call_back()
            self._write(taken)
        self._acknowledger.close()
        self._committer.close()

    def _write(self, sends: Sequence[Sends], *, again: bool = False) -> None:
        for written in self._committer.write(sends, again=again):
            self._acknowledger.acknowledge(written)

    def sent(self) -> None:
        """Commit a send that must not linger in this thread, or wake the worker.

        Where commits take long, the worker is not woken at once: a caller that waited for its last
        send will commit this one sooner, and two committing threads would delay each other.
        """
        if self._pending.in_transaction:
            self._pending.stage_excess()
            return
        awaited = self._pending.awaited()
        here = self._pending.calm() and self._log.prompt
        if not (here and self.try_here(waits=awaited)):
            self._pending.call_worker(now=not (awaited and self._log.is_remote))

    def sent_batch(self, sends: Sends) -> None:
        """Commit a batch in this thread if the caller waits for each; else leave it to gather."""
        if self._pending.in_transaction:
            self._pending.stage_excess()
            return
        here = self._pending.awaited() and self._log.prompt
        if not (here and self.try_here()):
            self._pending.call_worker_for(sends)

    def _help(self) -> bool:
        """Commit in the thread of a caller that waits for its send; whether it did."""
        return (self._log.prompt or self._log.is_remote) and self.try_here()

    def try_here(self, *, waits: bool = True) -> bool:
        """Commit what waits in the calling thread, unless another one is at it; True if it did.

        A caller that does not `wait` is released before all is on disk.
        """
        pending, me = self._pending, object()
        try:
            sends = pending.take_alone(self._log.inline_bytes_max, me)
            for written in self._committer.write(sends):
                self._acknowledger.acknowledge(written, here=waits)
            return bool(sends)
        except BaseException:  # raised by a signal: errors of a commit don't come up here
            if pending.caller is me:
                pending.abandoned = True
            pending.call_worker()
            raise
        finally:  # no call before the turn is free: it could be interrupted
            if pending.caller is me:
                pending.caller = None
                if pending.worker_waits:
                    pending.give_turn(None)
