"""The stores of this process: whoever names the same STORE_PATH shares one handle."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from functools import cached_property
from typing import Self

from kmq_spark.client.opening import open_store
from kmq_spark.client.producer import Producer
from kmq_spark.errors import AlreadyExistsError, ClosedError, InvalidRequestError
from kmq_spark.openmessaging.key_value import KeyValue
from kmq_spark.openmessaging.spelling import BothSpellings
from kmq_storage.log.topic_state import Topic
from kmq_storage.names import queue_log

#: Seconds that messages wait for others: with many topics there are few of each at a time.
_LINGER = 0.05
_lock = threading.Lock()
_shared: dict[str, Shared] = {}


class Shared:
    """A store, and how many use it."""

    def __init__(self, path: str) -> None:
        self.store, self.users = open_store(path), 0

    @cached_property
    def producer(self) -> Producer:
        """What all producers send with, so that their messages are stored together."""
        return self.store.producer(linger=_LINGER)

    def settle(self) -> None:
        """Wait until everything that was sent is stored, or refused."""
        if "producer" in vars(self):
            self.producer.flush()


class StoreUser(BothSpellings):
    """What is made from a KeyValue with STORE_PATH; it ends with `shutdown`, or the process."""

    def __init__(self, key_value: KeyValue) -> None:
        path = key_value.get_string("STORE_PATH") if isinstance(key_value, KeyValue) else None
        if path is None:
            raise InvalidRequestError(
                'STORE_PATH is missing: hand in KeyValue().put("STORE_PATH", ...)',
                setting="STORE_PATH",
            )
        self._path = path if "://" in path else os.path.abspath(path)
        with _lock:
            if self._path not in _shared:
                _shared[self._path] = Shared(self._path)
            self._shared = _shared[self._path]
            self._shared.users += 1
        self._store, self._host = self._shared.store, self._shared.store.url
        self._closed = False
        atexit.register(self.shutdown)

    def startup(self) -> None:
        """Nothing is left to do: it began when it was made."""
        self._check_open()

    def shutdown(self) -> None:
        """End, with everything stored that is to be; again is no error."""
        with _lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.shutdown)
        try:
            self._end()
        finally:
            with _lock:
                self._shared.users -= 1
                if not self._shared.users:
                    del _shared[self._path]
                    self._store.close()

    def _end(self) -> None:
        """What is to be done before the store is closed."""

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the {type(self).__name__} was shut down")

    def _topic(self, name: str) -> Topic:
        """A topic, which is made unless it is there."""
        with suppress(AlreadyExistsError):
            self._store.create_topic(name, exist_ok=False)
        return self._store.log.refresh().topic(name)

    def _queue_log(self, queue: str) -> Topic:
        """The own log of a queue, which is made unless it is there."""
        with suppress(AlreadyExistsError):
            self._store.create_queue(queue, exist_ok=False)
        return self._store.log.refresh().topic(queue_log(queue))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.shutdown()
