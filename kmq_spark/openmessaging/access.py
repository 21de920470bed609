"""The stores of this process: all users of one STORE_PATH share one handle."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, suppress

from kmq_spark.client.handles.apart import closes_apart
from kmq_spark.client.handles.at_end import at_end, not_at_end
from kmq_spark.client.handles.resource import Resource
from kmq_spark.client.opening import open_store
from kmq_spark.client.sending.producer import Producer
from kmq_spark.errors import AlreadyExistsError, ClosedError, InvalidRequestError
from kmq_spark.openmessaging.key_value import BothSpellings, KeyValue
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import queue_log
from kmq_storage.objects.fork import generation

#: Seconds that messages linger: with many topics, few messages of each come at a time.
_LINGER = 0.1
_lock = threading.Lock()
_shared: dict[str, Shared] = {}


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may hold it for ever
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Shared:
    """A store and the number of its users; the last user closes it."""

    def __init__(self, path: str) -> None:
        self.path, self.store, self.users = path, open_store(path), 0
        self._made: Producer | None = None

    @property
    def producer(self) -> Producer:
        """Return the one producer of the process, so that all messages share commits."""
        with _lock:
            self._made = self._made or self.store.producer(linger=_LINGER)
            return self._made

    def settle(self) -> None:
        """Wait until everything that was sent is stored or refused."""
        if self._made is not None:
            self._made.flush()

    def leave(self) -> None:
        """Count one user less."""
        with _lock:
            self.users -= 1
            if not self.users:
                del _shared[self.path]
                self.store.close()


class StoreUser(BothSpellings, Resource):
    """Made from a KeyValue with STORE_PATH; it ends with `shutdown`, or with the process."""

    def __init__(self, key_value: KeyValue) -> None:
        path = _path_in(key_value)
        with _lock:
            if path not in _shared:
                _shared[path] = Shared(path)
            self._shared = _shared[path]
            self._shared.users += 1
        self._store, self._log = self._shared.store, self._shared.store.log
        self._store._keep_up()
        #: The thread that shuts it down.
        self._closed_by: int | None = None
        #: What is done at the end, the last entry first.
        self._ending = ExitStack()
        self._ending.callback(self._shared.leave)
        self._made_in = generation()
        at_end(self._end)
        try:
            self._begin(key_value)
        except BaseException:  # else the store would stay open, though the caller was refused
            self.shutdown()
            raise

    def _begin(self, key_value: KeyValue) -> None:
        """Make what is used of the store."""

    def startup(self) -> None:
        """Does nothing: it began when it was made."""
        self._check_open()

    @closes_apart
    def shutdown(self) -> None:
        """Store what is pending, and end; a second call does nothing."""
        with _lock:
            self._closed_by = self._closed_by or threading.get_ident()
        if self._closed_by == threading.get_ident():  # after Ctrl-C, it goes on where it was
            self._ending.close()
            not_at_end(self._end)

    close = shutdown

    def _end(self) -> None:
        """End with the process, but not with a forked child of it."""
        if not self._is_parents:
            self.shutdown()

    @property
    def _is_parents(self) -> bool:
        """Whether this is a forked child of the process that made it, which stores positions."""
        return self._made_in != generation()

    def _check_open(self) -> None:
        if self._closed_by is not None:
            raise ClosedError(f"the {type(self).__name__} was shut down")

    def _log_of(self, kind: str, name: str) -> Topic:
        """A "Topic", or the own log of a "Queue", which is made unless it is there."""
        is_queue = kind == "Queue"
        make = self._store.create_queue if is_queue else self._store.create_topic
        with suppress(AlreadyExistsError):
            make(name, exist_ok=False)
        return self._log.refresh().topic(queue_log(name) if is_queue else name)


def no_bodies(topic: str) -> str:
    """Why the records of a typed topic are no messages, and the way out."""
    return (
        f"topic {topic} has a schema, and its records no body of bytes; read it with store.consumer"
    )


def _path_in(key_value: object) -> str:
    path = key_value.get_string("STORE_PATH") if isinstance(key_value, KeyValue) else None
    if path is None:
        raise InvalidRequestError(
            f"STORE_PATH is missing in settings of type {type(key_value).__name__}: hand in "
            'KeyValue().put("STORE_PATH", ...)',
            setting="STORE_PATH",
        )
    return path if "://" in path else os.path.abspath(path)
