"""What all handles of one keyed topic in a store share: its reader, its producer, its receivers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from kmq_spark.client.keyed.receiving import GroupReceiver
from kmq_spark.client.sending.producer import Producer
from kmq_spark.errors import ClosedError, CorruptionError, NotFoundError, UnavailableError
from kmq_storage.keyed.reading import QueueReader
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.objects.fork import reopen_in_child

_Index = TypeVar("_Index")


class SharedQueues:
    """What the handles of one keyed topic in a store have in common."""

    def __init__(
        self,
        log: CommitLog,
        name: str,
        producer: Callable[[], Producer],
        again: Callable[[], CommitLog] | None,
    ) -> None:
        """`again` reopens the log read-only, to look up indexes after the store was closed."""
        self.name = name
        self._again = again
        self.reader = QueueReader(log, name)
        #: None until the first put.
        self.made: Producer | None = None
        self._log = log
        self._new_producer = producer
        self._receivers: dict[str, GroupReceiver] = {}
        self._making = threading.Lock()
        reopen_in_child(self._after_fork)

    def _after_fork(self) -> None:
        """Make a new lock: another thread of the parent may have held the old one."""
        self._making = threading.Lock()

    def check_open(self) -> None:
        """ClosedError once the store was closed."""
        self._log.check_open()

    def warned(self, found: _Index) -> _Index:
        """Return `found`, with a KmqWarning (at the caller's caller) where damage may hide more."""
        state = self._log.state
        warn_of_doubtful_ends(state, filter(None, [state.find_topic(self.name)]), depth=2)
        return found

    def producer(self) -> Producer:
        """Return the producer, which the first put opens: a reader needs none."""
        with self._making:
            if self.made is None:
                self.made = self._new_producer()
            return self.made

    def looked_up(self, look: Callable[[QueueReader], _Index]) -> _Index:
        """Return what `look` finds; its errors say that the messages are stored nevertheless."""
        try:
            try:
                return look(self.reader)
            except ClosedError:
                if self._again is None:
                    raise
                return self._looked_again(look, self._again)
        except (ClosedError, CorruptionError) as error:
            raise type(error)(
                f"the messages are stored, but their indexes can't be told: {error.message}",
                **error.context,
            ) from error

    def _looked_again(
        self, look: Callable[[QueueReader], _Index], again: Callable[[], CommitLog]
    ) -> _Index:
        """Look in the store as it is now: the index of a message never changes."""
        try:
            log = again()
        except (NotFoundError, UnavailableError) as error:
            raise ClosedError(f"the store is closed, and not there any more: {error}") from error
        with closing(log):
            return look(QueueReader(log, self.name))

    def wake(self) -> None:
        """Wake waiting receivers, to check whether they are to stop."""
        self._log.wake_waiters()

    def receiver(self, group: str) -> GroupReceiver:
        """Return the one receiver for a group."""
        found = self._receivers.get(group) if isinstance(group, str) else None
        if found is None:
            found = GroupReceiver(self._log, self.name, self.reader, group)
            self._receivers[group] = found
        return found
