"""The push consumer: a listener is called for each message of a queue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kmq_spark.errors import IllegalStateError, InvalidRequestError
from kmq_spark.openmessaging.access import StoreUser
from kmq_spark.openmessaging.key_value import KeyValue
from kmq_spark.openmessaging.message import BytesMessage
from kmq_spark.openmessaging.producer import Producer
from kmq_spark.openmessaging.pull import PullConsumer
from kmq_spark.openmessaging.spelling import also_in_camel_case
from kmq_spark.openmessaging.stored import DERIVED

_LOGGER = logging.getLogger(__name__)
#: How often a listener that fails is called with the same message, and what lies between (s).
_ATTEMPTS, _PAUSE, _LONGEST_PAUSE = 16, 0.1, 5.0
_WAIT = KeyValue().put("OPERATION_TIMEOUT", 200)

Listener = Callable[[BytesMessage, "ReceivedMessageContext"], object]


@also_in_camel_case
class ReceivedMessageContext:
    """What a listener gets beside the message."""

    def __init__(self, queue: str, attempt: int, ack: Callable[[], None]) -> None:
        self.queue, self._ack = queue, ack
        self._properties = KeyValue().put("DeliveryCount", attempt)
        #: Whether the listener said so itself.
        self.is_done = False

    def properties(self) -> KeyValue:
        """`DeliveryCount`: how often the listener was called with this message."""
        return self._properties

    def ack(self) -> None:
        """The message is done, whatever the listener still does; its return says the same."""
        self._ack()
        self.is_done = True


@also_in_camel_case
class PushConsumer(StoreUser):
    """Calls listeners, one message of a queue after the other; each queue has a thread.

    When the listener returns, the message is done. When it raises, it is called again, later
    messages wait; after 16 times the message goes to the queue `<queue>.dlq`.
    """

    def __init__(self, key_value: KeyValue | Mapping[str, Any]) -> None:
        super().__init__(key_value)
        self._settings = key_value
        self._threads: dict[str, threading.Thread] = {}
        #: Set while messages are handed out.
        self._running = threading.Event()
        self._running.set()
        self._ended = threading.Event()

    def attach_queue(
        self,
        queue: str,
        topics: Iterable[str] | str | Listener = (),
        listener: Listener | None = None,
    ) -> None:
        """Call `listener(message, context)` for each message of a queue, bound to these topics.

        The listener may be a function, or an object with `on_message` or `onMessage`; it may
        stand in the place of the topics.
        """
        self._check_open()
        names, found = ((), topics) if listener is None else (topics, listener)
        for method in ("on_message", "onMessage"):
            found = getattr(found, method, found)
        if not callable(found) or not isinstance(names, Iterable):
            raise InvalidRequestError(f"the listener of queue {queue} can't be called: {found!r}")
        if queue in self._threads:
            raise InvalidRequestError(f"queue {queue} has a listener already")
        pull = PullConsumer(self._settings)
        pull.attach_queue(queue, names)
        run = threading.Thread(
            target=self._run, args=(pull, queue, found), name=f"kmq-oms-{queue}", daemon=True
        )
        self._threads[queue] = run
        run.start()

    def suspend(self) -> None:
        """Call no listener until `resume`; one that is being called goes on."""
        self._check_open()
        self._running.clear()

    def resume(self) -> None:
        """Go on; IllegalStateError when it was not suspended."""
        self._check_open()
        if self._running.is_set():
            raise IllegalStateError("the consumer is not suspended: there is nothing to resume")
        self._running.set()

    def is_suspended(self) -> bool:
        """Whether listeners are not called now."""
        return not self._running.is_set()

    def _run(self, pull: PullConsumer, queue: str, listener: Listener) -> None:
        try:
            while not self._ended.is_set():
                self._running.wait()
                message = pull.poll(_WAIT)
                if message is not None and self._running.wait() and not self._ended.is_set():
                    self._deliver(pull, queue, message, listener)
        except Exception:
            if not self._ended.is_set():
                _LOGGER.exception("queue %s is not read any more", queue)
        finally:
            pull.shutdown()

    def _deliver(
        self, pull: PullConsumer, queue: str, message: BytesMessage, listener: Listener
    ) -> None:
        identity = message.headers().get_string("MessageId")

        def ack() -> None:
            pull.ack(identity)

        for attempt in range(1, _ATTEMPTS + 1):
            context = ReceivedMessageContext(queue, attempt, ack)
            try:
                listener(message, context)
            except Exception:
                _LOGGER.exception("the listener of queue %s failed with %s", queue, identity)
                if context.is_done:
                    return
                self._ended.wait(min(_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE))
                self._running.wait()
                if self._ended.is_set():
                    return  # the next consumer gets it
            else:
                break
        else:
            self._bury(queue, message)
        ack()

    def _bury(self, queue: str, message: BytesMessage) -> None:
        with Producer(self._settings) as producer:
            letters = f"{queue}.dlq"
            letter = producer.create_bytes_message_to_queue(letters, message.get_body() or b"")
            own = {k: v for k, v in message.header_values().items() if k not in DERIVED}
            letter.header_values().update(own)
            letter.property_values().update(message.property_values())
            producer.send(letter)

    def _end(self) -> None:
        self._ended.set()
        self._running.set()
        for thread in self._threads.values():
            if thread is not threading.current_thread():
                thread.join()
