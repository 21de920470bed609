"""One thread at a time: a call meanwhile is refused at once, and a close waits for its turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from kmq_spark.client.handles.apart import closes_apart
from kmq_spark.client.handles.resource import Resource
from kmq_spark.errors import ClosedError, IllegalStateError

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound="OneThread")


class OneThread(Resource):
    """A handle whose calls marked with `alone` refuse each other, and end when it is closed."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        #: The thread that is in a call.
        self._inside = 0
        self._closed = False
        self._ended = False
        #: Whether the call that is inside ends the handle when it is left.
        self._ends_inside = False

    def _begin(self) -> None:
        """What comes before each call."""

    def _end(self, *, commit: bool) -> None:
        """What comes after the last call, once."""

    def _leave(self) -> None:
        """What each close does at its end, since the one before may have been interrupted."""

    def _calls_back(self) -> bool:
        """Whether the call that is inside has called back its user, and waits for the return."""
        return False

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed")

    def _check_free(self) -> None:
        if self._busy.locked():
            self._check_open()
            if self._inside == threading.get_ident():
                raise IllegalStateError(
                    "a consumer's callback can't make this call: it may ask for positions, seek, "
                    "pause, resume and commit"
                )
            raise IllegalStateError(
                "a consumer is used by one thread at a time; another thread is in a call of it"
            )

    def _close(self, *, commit: bool) -> None:
        """End every call, then the handle; from any thread, callback and signal's handler."""
        commit = commit and not self._inside  # a call began with a commit of what was handed out
        self._stop()
        if self._inside == threading.get_ident():
            self._ends_inside = True
        else:
            self._end_alone(commit=commit)

    @closes_apart
    def _end_alone(self, *, commit: bool) -> None:
        with self._busy:
            self._inside = threading.get_ident()
            try:
                self._end_once(commit=commit)
            finally:
                self._inside = 0

    def _stop(self) -> None:
        """Make every call end with ClosedError."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        """Wake a call that waits, to check whether the handle was closed."""

    def _end_once(self, *, commit: bool) -> None:
        try:
            if not self._ended:
                self._ended = True
                self._end(commit=commit)
        finally:
            self._leave()


def alone(call: Callable[Concatenate[H, P], T]) -> Callable[Concatenate[H, P], T]:
    """Let one thread at a time run a method; ClosedError once its handle is closed."""
    return _guarded(call, called_back=False)


def alone_or_called_back(call: Callable[Concatenate[H, P], T]) -> Callable[Concatenate[H, P], T]:
    """As `alone`, but a callback of the call that is inside may run the method, too."""
    return _guarded(call, called_back=True)


def _guarded(
    call: Callable[Concatenate[H, P], T], *, called_back: bool
) -> Callable[Concatenate[H, P], T]:
    @wraps(call)
    def guarded(handle: H, /, *arguments: P.args, **options: P.kwargs) -> T:
        me = threading.get_ident()
        if called_back and handle._inside == me and handle._calls_back():
            return call(handle, *arguments, **options)
        handle._check_free()
        with handle._busy:  # entering and leaving it can't be interrupted in between
            handle._inside = me
            try:
                handle._check_open()
                handle._begin()
                return call(handle, *arguments, **options)
            finally:
                if handle._ends_inside:
                    handle._end_once(commit=False)
                handle._inside = 0

    return guarded
