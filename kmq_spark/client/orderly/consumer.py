"""The orderly consumer: one thread reads for the group, others hand records to the listener.

`rules` and `process_queue` decide what follows from the listener's answers. The reading thread
commits offsets, those of all partitions in one commit. A thread that called the listener commits
dead letters, together with their offset.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Self

from kmq_spark.client.consuming.subscription import checked_topics, subscription_of
from kmq_spark.client.handles.apart import closes_apart
from kmq_spark.client.handles.arguments import check_plain, checked_timeout
from kmq_spark.client.handles.resource import Resource
from kmq_spark.client.orderly.process_queue import QueueState
from kmq_spark.client.orderly.reading import Reading
from kmq_spark.client.orderly.rules import Listener, OrderlySettings
from kmq_spark.errors import ClosedError, IllegalStateError, InvalidRequestError, KmqTimeoutError
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.names import check_name, letters_topic
from kmq_storage.waking import Flag

_LOGGER = logging.getLogger(__name__)


class OrderlyConsumer(Resource):
    """Calls a listener with the records of its partitions, in order per partition.

    Use it in a `with` block, or by `start` and `close`. The listener runs in threads of the
    consumer: with one batch of a partition at a time, and with batches of several partitions at
    once.
    """

    def __init__(
        self,
        log: CommitLog,
        group: str,
        topics: Iterable[str] | str,
        listener: Listener,
        settings: OrderlySettings,
    ) -> None:
        self._log = log
        self._group = check_name("group", group)
        self._topics = _checked_topics(log, group, topics)
        if not callable(listener):
            raise InvalidRequestError(f"listener must be callable, not {listener!r}")
        check_plain("listener", listener)
        check_writable(log.files)
        self._listener, self._settings = listener, settings
        self._starting = threading.Lock()
        self._closing = Flag()
        self._reading: Reading | None = None
        self._thread = threading.Thread(target=self._run, name="kmq-orderly", daemon=True)
        self._failure: BaseException | None = None

    def __repr__(self) -> str:
        return f"OrderlyConsumer({self._group!r})"

    def start(self) -> None:
        """Join the group and begin; a second call does nothing."""
        with self._starting:
            self._check_open()
            if self._reading is None:
                reading = Reading(
                    self._log, self._group, self._listener, self._settings, self._closing
                )
                reading.begin(self._topics)
                self._reading = reading
            if not self._is_started:  # also after Ctrl-C in between
                self._thread.start()

    @property
    def _is_started(self) -> bool:
        return self._thread.ident is not None

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise ClosedError("the consumer is closed")

    def _run(self) -> None:
        assert self._reading is not None, "it was started"
        try:
            self._reading.run()
        except BaseException as error:
            _LOGGER.exception("the orderly consumer of group %s ends", self._group)
            self._failure = error

    @closes_apart
    def close(self) -> None:
        """Wait until the listener has answered, commit what it finished, and leave the group.

        May be called from any thread. Called by the listener itself, it doesn't wait; no more
        records of this partition come then.
        """
        reading = self._stop()
        if reading is None or reading.is_listener():
            return
        if self._is_started:
            self._thread.join()
        else:  # Ctrl-C came first: what the thread would do now is to leave the group
            self._run()

    def _stop(self) -> Reading | None:
        """Make it end, without waiting for that."""
        self._closing.set()
        with self._starting:
            reading = self._reading
        if reading is not None:
            reading.wake()
        return reading

    def join(self, timeout: float | None = None) -> None:
        """Wait until it is closed; raises the error that ended it before.

        KmqTimeoutError when it still runs after `timeout` seconds.
        """
        seconds = checked_timeout(timeout)
        if not self._is_started:
            raise IllegalStateError(
                "the consumer was not started: call start(), or use it in a `with` block"
            )
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise KmqTimeoutError(
                f"the consumer still runs after {seconds:g} s: close it, or wait longer",
                timeout=seconds,
            )
        if self._failure is not None:
            raise self._failure

    def process_queues(self) -> dict[str, dict[int, QueueState]]:
        """Return the state of each process queue: `{topic: {partition: QueueState}}`."""
        found: dict[str, dict[int, QueueState]] = {}
        queues = self._reading.queues.copy() if self._reading is not None else {}
        for (topic, partition), queue in sorted(queues.items()):
            found.setdefault(topic, {})[partition] = queue.state
        return found

    def __enter__(self) -> Self:
        self.start()
        return self


def _checked_topics(log: CommitLog, group: str, topics: Iterable[str] | str) -> tuple[str, ...]:
    """Return the names of topics that exist, and that aren't the group's own dead letters."""
    names = subscription_of(log.refresh(), checked_topics(topics), None).topics
    own = letters_topic(group)
    if own in names:
        raise InvalidRequestError(
            f"group {group} can't read {own}, where its own dead letters go: use another group",
            topic=own,
        )
    return names
