"""A consumer's callbacks in asyncio: they run in the event loop.

The consumer's thread waits inside its call until the callback is done. What the callback asks of
its consumer meanwhile is done in that thread, as if a plain callback had asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import isawaitable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from kmq_spark.client.consuming.subscription import Listener, Partitions
from kmq_spark.errors import IllegalStateError, InvalidRequestError

T = TypeVar("T")
AsyncCallback: TypeAlias = Callable[[Partitions], Awaitable[object] | object]

_LOGGER = logging.getLogger(__name__)
#: The consumer whose callback a task is, or was begun by.
_telling: ContextVar[Callbacks | None] = ContextVar("kmq_telling", default=None)


class Callbacks:
    """The callbacks of one consumer."""

    def __init__(self) -> None:
        #: What a callback asks for, while one runs; only the event loop's thread changes it.
        self._asked: SimpleQueue[Callable[[], None] | None] | None = None

    @property
    def asks(self) -> bool:
        """Whether the caller is a callback that runs now."""
        return self._asked is not None and _telling.get() is self

    def check_not_asked(self) -> None:
        """IllegalStateError for a callback: what it asks for would wait for itself."""
        if self.asks:
            raise IllegalStateError(
                "a consumer's callback can't make this call: it may ask for positions, seek, "
                "pause, resume and commit"
            )

    async def run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Do what a callback asks for, in the thread that waits for the callback."""
        done: Future[T] = Future()

        def work() -> None:
            try:
                done.set_result(call(*arguments, **options))
            except BaseException as error:
                done.set_exception(error)

        assert self._asked is not None, "a callback runs"
        self._asked.put(work)
        return await asyncio.wrap_future(done)

    def listener(self, callback: AsyncCallback | None) -> Listener | None:
        """What the twin calls, in the thread of a call of it."""
        if callback is None:
            return None
        if not callable(callback):
            raise InvalidRequestError(f"callbacks must be callable, not {callback!r}")
        return _InLoop(self, asyncio.get_running_loop(), callback)

    async def _tell(self, callback: AsyncCallback, partitions: Partitions, asked: Any) -> None:
        _telling.set(self)
        self._asked = asked
        try:
            answer = callback(partitions)
            if isawaitable(answer):
                await answer
        finally:
            self._asked = None


@dataclass(frozen=True, slots=True)
class _InLoop:
    """What the twin calls; equal for the same callback, as the twin compares them."""

    callbacks: Callbacks
    loop: asyncio.AbstractEventLoop
    callback: AsyncCallback

    def __call__(self, partitions: Partitions) -> None:
        if not self.loop.is_running():
            _LOGGER.warning(
                "%r was not told of %s: its event loop ended", self.callback, partitions
            )
            return
        asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        telling = self.callbacks._tell(self.callback, partitions, asked)
        told = asyncio.run_coroutine_threadsafe(telling, self.loop)
        told.add_done_callback(lambda _: asked.put(None))
        while (work := asked.get()) is not None:
            work()
        told.result()
