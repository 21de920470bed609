"""The stores of this process: whoever names the same STORE_PATH shares one handle."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from kmq_spark.client.opening import open_store
from kmq_spark.client.producer import Producer
from kmq_spark.errors import ClosedError
from kmq_spark.openmessaging.key_value import KeyValue, setting

#: Seconds that messages wait for others: with many topics there are few of each at a time.
_LINGER = 0.05
_lock = threading.Lock()
_shared: dict[str, Shared] = {}


class Shared:
    """A store, and who uses it."""

    def __init__(self, path: str) -> None:
        self.store = open_store(path)
        self.users: set[StoreUser] = set()

    @cached_property
    def producer(self) -> Producer:
        """What all producers send with, so that their messages are stored together."""
        return self.store.producer(linger=_LINGER)


class StoreUser:
    """What is made from a KeyValue with STORE_PATH; it ends with `shutdown`, or the process."""

    def __init__(self, key_value: KeyValue | Mapping[str, Any]) -> None:
        path = setting(key_value, "STORE_PATH")
        self._path = path if "://" in path else os.path.abspath(path)
        with _lock:
            if self._path not in _shared:
                _shared[self._path] = Shared(self._path)
            self._shared = _shared[self._path]
            self._shared.users.add(self)
        self._store = self._shared.store
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
                self._shared.users.discard(self)
                if not self._shared.users:
                    del _shared[self._path]
                    self._store.close()

    def _end(self) -> None:
        """What is to be done before the store is closed."""

    def settle(self) -> None:
        """Wait until everything that it sent is stored, or refused."""

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the {type(self).__name__} was shut down")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.shutdown()
