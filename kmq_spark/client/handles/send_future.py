"""Futures of sends, light enough for one per record.

A `concurrent.futures.Future` costs microseconds, mostly its condition. A SendFuture is a Future
by type and behaviour, but shares one Outcome with all sends that are committed together, and
grows what waiting needs only when a caller waits.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from operator import itemgetter
from typing import Any, NoReturn, Protocol, SupportsIndex, TypeVar

from kmq_spark.client.handles.arguments import checked_seconds
from kmq_spark.errors import IllegalStateError, KmqError, KmqTimeoutError
from kmq_storage.objects.fork import generation
from kmq_storage.waking import Sleepers

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

#: Held while an outcome grows waiters; one for all, since that is rare and short.
_growing = threading.Lock()


def _after_fork_in_child() -> None:
    global _growing  # noqa: PLW0603 - the parent may hold the lock for ever
    _growing = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Expedite(Protocol):
    """Tells the committing thread that a caller waits."""

    def __call__(self, *, helping: bool = False) -> None:
        """Commit soon; with `helping` the thread that waits may do it itself."""


class Outcome:
    """The outcome of sends that are committed together; subclasses know the places."""

    __slots__ = (
        "_callbacks", "_generation", "_sleepers", "_waiters", "awaited_by", "done", "expedite",
    )  # fmt: skip

    def __init__(self, expedite: Expedite) -> None:
        self.done = False
        #: The thread that last waited for this without a limit, done or not.
        self.awaited_by = 0
        #: Called when a caller waits: lingering would only make the wait longer.
        self.expedite = expedite
        #: The fork generation of the process whose producer commits it.
        self._generation = generation()
        self._sleepers: Sleepers | None = None
        self._callbacks: list[tuple[Callable[[Any], object], SendFuture[Any]]] = []
        self._waiters: dict[int, SendFuture[Any]] = {}

    def error(self, index: int) -> KmqError | None:
        """Why this send failed, once done."""
        raise NotImplementedError

    def place(self, index: int) -> Any:
        """Where this send's record is, once done without error."""
        raise NotImplementedError

    def wait(self, timeout: float | None) -> bool:
        """Sleep until done, at most `timeout` seconds; whether it is done."""
        self.check_own()
        self.expedite(helping=timeout is None)  # a helping caller can't stop after some time
        return self.done or self._grown_sleepers().sleep(lambda: self.done, timeout)

    def _grown_sleepers(self) -> Sleepers:
        with _growing:
            if self._sleepers is None:
                self._sleepers = Sleepers()
            return self._sleepers

    def check_own(self) -> None:
        """IllegalStateError in a forked child, where nobody will ever finish this send."""
        if not self.done and self._generation < generation():
            raise IllegalStateError(
                "the send was pending when this process was forked: its parent stores it, and only "
                "the parent can wait for it; wait before forking"
            )

    @property
    def calls_back(self) -> bool:
        """Whether it has callbacks."""
        return bool(self._callbacks)

    def finish(self) -> None:
        """Wake all waiting callers."""
        with _growing:
            self.done = True
            sleepers, waiters = self._sleepers, list(self._waiters.values())
        if sleepers is not None:
            sleepers.wake()
        if waiters:
            _wake_waiters_of(waiters)

    def call_back(self) -> None:
        """Run the callbacks, once it is finished."""
        for callback, future in self._callbacks:
            future.invoke(callback)

    def call_when_done(self, callback: Callable[[Any], object], future: SendFuture[Any]) -> None:
        """Call back after `finish`, or now when it is past."""
        self.check_own()
        with _growing:
            if not self.done:
                self._callbacks.append((callback, future))
                return
        future.invoke(callback)

    def watch(self, future: SendFuture[Any]) -> None:
        """Remember a future that `concurrent.futures.wait` waits on."""
        with _growing:
            self._waiters[id(future)] = future


class SendFuture(Future[T], tuple[Outcome, int]):
    """The future of one send: `result()` is its metadata.

    It is a light view of an outcome that many sends share, a tuple `(outcome, index)`: made without
    running Python code, at half the cost of attributes for the garbage collector. Each future is
    equal to itself only.
    """

    __slots__ = ()
    __init__ = object.__init__  # not Future's: that is the point
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    _outcome: Outcome = property(itemgetter(0))  # type: ignore[assignment]
    _index: int = property(itemgetter(1))  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<SendFuture {self._state.lower()}>"

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        raise IllegalStateError(
            "a send's future can't be pickled or copied: pass on its result(), the metadata"
        )

    @property
    def first(self) -> bool:
        """Whether it is the first send of its outcome."""
        return self._index == 0

    def done(self) -> bool:
        """Whether the send is durable, or has failed."""
        return self._outcome.done

    def running(self) -> bool:
        """Whether the send is not done yet: it runs from the call on."""
        return not self._outcome.done

    def cancel(self) -> bool:
        """Always False: a send can't be taken back."""
        return False

    def cancelled(self) -> bool:
        """Always False."""
        return False

    def result(self, timeout: float | None = None) -> T:
        """Return the metadata once the send is durable; raises the error of a send that failed.

        KmqTimeoutError when it is neither after `timeout` seconds.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        place: T = self._outcome.place(self._index)
        return place

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of the send, or None once it is durable.

        KmqTimeoutError when it is not done after `timeout` seconds.
        """
        outcome = self._outcome
        if timeout is not None:  # a negative rest of time is no error: there is no time left
            timeout = checked_seconds("timeout", timeout, above=-math.inf)
        outcome.awaited_by = threading.get_ident() if timeout is None else 0
        if not (outcome.done or outcome.wait(timeout)):
            raise KmqTimeoutError(f"the send is not durable after {timeout:g} s", timeout=timeout)
        return outcome.error(self._index)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call `fn` with this future when it is done: in the producer's thread, or now if it is."""
        self._outcome.call_when_done(fn, self)

    def invoke(self, callback: Callable[[Any], object]) -> None:
        """Run a callback; as in Future, what it raises is logged."""
        try:
            callback(self)
        except Exception:
            _LOGGER.exception("exception calling callback for %r", self)

    # What concurrent.futures.wait() and as_completed() use, made on demand.

    @property
    def _state(self) -> str:  # type: ignore[override]
        return "FINISHED" if self._outcome.done else "RUNNING"

    def _grown(self) -> dict[str, Any]:
        grown = self.__dict__
        if "condition" not in grown:
            self._outcome.check_own()
            with _growing:
                grown.setdefault("condition", threading.Condition())
                grown.setdefault("waiters", [])
            self._outcome.watch(self)
            self._outcome.expedite()
        return grown

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        condition: threading.Condition = self._grown()["condition"]
        return condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        waiters: list[Any] = self._grown()["waiters"]
        return waiters

    def wake_waiters(self) -> None:
        """Wake callers that wait by `concurrent.futures.wait` or `as_completed`."""
        failed = self._outcome.error(self._index) is not None
        with self._condition:
            for waiter in self._waiters:
                (waiter.add_exception if failed else waiter.add_result)(self)
            self._condition.notify_all()


def _wake_waiters_of(futures: Iterable[SendFuture[Any]]) -> None:
    """Wake waiters of `concurrent.futures`, whose locks an interrupted wait leaves taken.

    It is done in a thread of its own, which then hangs in place of the committing thread.
    """

    def wake() -> None:
        for future in futures:
            future.wake_waiters()

    try:
        threading.Thread(target=wake, name="kmq-wake", daemon=True).start()
    except RuntimeError:  # at its end, the interpreter starts no threads
        wake()


def expedite(future: Future[Any], *, helping: bool = False) -> None:
    """Commit a send without lingering, as if a caller waited for its future.

    With `helping`, this thread may commit it before this returns.
    """
    if isinstance(future, SendFuture):
        future._outcome.expedite(helping=helping)
