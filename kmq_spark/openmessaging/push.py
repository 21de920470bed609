"""The push consumer: a listener is called for each message of a queue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kmq_spark.client.handles.arguments import check_plain
from kmq_spark.client.handles.at_end import not_at_end
from kmq_spark.client.queues.dead_letters import moving, origin
from kmq_spark.client.queues.reading import parts_of
from kmq_spark.client.queues.reasons import TOO_OFTEN, told
from kmq_spark.client.records.record import Record
from kmq_spark.client.records.record_values import records_of
from kmq_spark.errors import DataLossError, IllegalStateError, InvalidRequestError, KmqError
from kmq_spark.openmessaging.access import StoreUser
from kmq_spark.openmessaging.key_value import BothSpellings, KeyValue
from kmq_spark.openmessaging.message import BytesMessage, delivery_of, place_of
from kmq_spark.openmessaging.pull import PullConsumer
from kmq_storage.format.queue_entries import Run
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.queues.administration import dead_letters_of
from kmq_storage.waking import Flag

_LOGGER = logging.getLogger(__name__)
#: How often a failing listener is called with a message; the first and longest pause (seconds).
_ATTEMPTS, _PAUSE, _LONGEST_PAUSE = 16, 0.1, 5.0
_WAIT = KeyValue().put("OPERATION_TIMEOUT", 200)

Listener = Callable[[BytesMessage, "ReceivedMessageContext"], object]


@dataclass(slots=True, eq=False)
class ReceivedMessageContext(BothSpellings):
    """What a listener gets beside the message."""

    _attempt: int
    _ack: Callable[[], None]
    #: Whether the message is acknowledged.
    is_done: bool

    def properties(self) -> KeyValue:
        """Return `DeliveryCount`: how often the listener was called with this message."""
        return KeyValue().put("DeliveryCount", self._attempt)

    def ack(self) -> None:
        """Acknowledge the message now; returning from the listener does the same."""
        self._ack()
        self.is_done = True


class PushConsumer(StoreUser):
    """Calls a listener with the messages of a queue, one after the other, in a thread per queue.

    A message is acknowledged when the listener returns. When it raises, it is called again, and
    later messages wait. After 16 calls the message goes to the queue `<queue>.dlq`.
    """

    def _begin(self, key_value: KeyValue) -> None:
        self._settings = key_value
        self._threads: dict[str, threading.Thread] = {}
        #: Set while messages are handed out.
        self._running = Flag()
        self._running.set()
        self._ended = Flag()
        self._ending.callback(self._stop)

    def attach_queue(
        self,
        queue: str,
        topics: Iterable[str] | str | Listener = (),
        listener: Listener | None = None,
    ) -> None:
        """Call `listener(message, context)` for each message of a queue, bound to these topics.

        The listener is a function, or an object with `on_message` or `onMessage`. Without topics it
        may be the second argument.
        """
        self._check_open()
        names, found = ((), topics) if listener is None else (topics, listener)
        found = getattr(found, "on_message", getattr(found, "onMessage", found))
        if not callable(found) or not isinstance(names, Iterable):
            raise InvalidRequestError(f"the listener of queue {queue} can't be called: {found!r}")
        check_plain(f"the listener of queue {queue}", found)
        if queue in self._threads:
            raise InvalidRequestError(f"queue {queue} has a listener already")
        pull = PullConsumer(self._settings)
        not_at_end(pull._end)  # it ends with its thread
        pull.acknowledges = True
        run = threading.Thread(
            target=self._run, args=(pull, found), name=f"kmq-oms-{queue}", daemon=True
        )
        try:
            pull.attach_queue(queue, names)
            self._threads[queue] = run
            run.start()
        except BaseException:
            self._threads.pop(queue, None)
            pull.shutdown()
            raise

    def suspend(self) -> None:
        """Call no listener until `resume`; a call that runs goes on."""
        self._check_open()
        self._running.clear()

    def resume(self) -> None:
        """Continue; IllegalStateError when it was not suspended."""
        self._check_open()
        if self._running.is_set():
            raise IllegalStateError("the consumer is not suspended: there is nothing to resume")
        self._running.set()

    def is_suspended(self) -> bool:
        """Whether it is suspended."""
        return not self._running.is_set()

    def _run(self, pull: PullConsumer, listener: Listener) -> None:
        with pull:
            while self._goes_on():
                try:
                    if (message := pull.poll(_WAIT)) is not None:
                        self._deliver(pull, message, listener)
                except DataLossError as error:
                    _LOGGER.warning("queue %s goes on behind what it lost: %s", pull.queue, error)
                except Exception as error:
                    if not (isinstance(error, KmqError) and error.retryable):
                        _LOGGER.exception("queue %s is not read any more", pull.queue)
                        return
                    _LOGGER.warning("queue %s is read again soon: %s", pull.queue, error)
                    self._ended.wait(_LONGEST_PAUSE)

    def _goes_on(self) -> bool:
        """Whether a listener may be called, when it is not suspended any more."""
        return self._running.wait() and not self._ended.is_set()

    def _deliver(self, pull: PullConsumer, message: BytesMessage, listener: Listener) -> None:
        """Call the listener until the message is done; at the end it is the next consumer's."""
        identity = message.headers().get_string("MessageId")
        failure: BaseException | None = None
        for attempt in range(1, _ATTEMPTS + 1):
            if not self._goes_on():
                return
            if delivery_of(message.header_values)[1] < pull._now():
                break  # its time ended while it was suspended, or between two attempts
            context = ReceivedMessageContext(attempt, lambda: pull.ack(identity), is_done=False)
            try:
                listener(message, context)
            except BaseException as error:  # `sys.exit` in a listener must not end this thread
                failure = error
                _LOGGER.exception("the listener of queue %s failed with %s", pull.queue, identity)
            else:
                context.ack()
            if context.is_done:
                return
            self._ended.wait(min(_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE))
        else:
            while not self._bury(pull, identity, failure):
                self._ended.wait(_LONGEST_PAUSE)
                if not self._goes_on():
                    return
        pull.ack(identity)

    def _bury(self, pull: PullConsumer, identity: str | None, why: BaseException | None) -> bool:
        """Store a message as a dead letter, as the engine's queues do, with the position behind it.

        False when it can't be.
        """
        log = self._log
        try:
            found = log.refresh().queue(pull.queue)
            for record in self._stored_record(pull, identity):
                facts = origin(log.state, pull.queue, record, _ATTEMPTS, told(why, TOO_OFTEN))
                target, behind = dead_letters_of(log, found), pull.position_behind(identity)
                log.commit([moving(log, target, [(record, facts)], *behind)])
        except KmqError as error:  # also when the dead letter queue is full: later messages wait
            _LOGGER.warning("queue %s waits: its dead letter is not stored: %s", pull.queue, error)
            return False
        return True

    def _stored_record(self, pull: PullConsumer, identity: str | None) -> list[Record]:
        """A message as it is in the log; none when it was trimmed meanwhile."""
        name, number, offset = place_of(identity) or ("", 0, 0)
        run = Run(pull.ids[name], number, offset, rows=1, delivery=_ATTEMPTS)
        parts = parts_of(self._log, ChunkReader(self._log.files), run)
        return [record for part in parts for record in records_of(part)]

    def _stop(self) -> None:
        self._ended.set()
        self._running.set()
        for thread in self._threads.values():
            if thread is not threading.current_thread():
                thread.join()
