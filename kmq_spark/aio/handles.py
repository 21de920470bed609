"""What all handles of asyncio have in common: a thread of their own, and ways to be opened."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, NoReturn, Self, SupportsIndex, TypeVar

from kmq_spark.client.arguments import checked_timeout
from kmq_spark.client.resource import Resource, stays_here
from kmq_spark.errors import ClosedError

T = TypeVar("T")
H = TypeVar("H", bound="Handle")

#: A thread that waits looks this often whether its task was cancelled (seconds).
_SLICE = 0.2
#: As good as for ever.
_ALONE = 3600.0
#: A thread that was about to sleep does so by then.
_ASLEEP = 0.02


async def in_slices(
    take: Callable[[float], Awaitable[T]],
    timeout: float | None,
    longest: Callable[[], float] = lambda: _SLICE,
) -> T:
    """Take for a slice of the time after the other, so that a cancelled wait soon frees a thread.

    What came, or what the last slice gave when nothing came within `timeout` seconds.
    """
    limit = checked_timeout(timeout)
    now = asyncio.get_running_loop().time
    deadline = None if limit is None else now() + limit
    while True:
        left = longest() if deadline is None else min(longest(), max(0.0, deadline - now()))
        found = await take(left)
        if found or (deadline is not None and now() >= deadline):
            return found


class GivingWay:
    """Has the call of a handle that waits for records sleep, until another one needs its thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        #: Calls of the handle that are not done, whether they have their turn or wait for it.
        self._calls = 0
        #: Tells the call that waits in the thread to end.
        self._off: threading.Event | None = None

    @contextmanager
    def call(self) -> Iterator[None]:
        """For each call: who waits gives way."""
        self._call_off()
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    @contextmanager
    def wait(self) -> Iterator[Callable[[], bool]]:
        """For a call that waits in the thread: whether it is to end."""
        off = self._off = threading.Event()
        try:
            yield off.is_set
        except asyncio.CancelledError:
            self._call_off()
            raise
        finally:
            self._off = None

    def longest(self) -> float:
        """How long a call may wait in one go: those of several tasks take turns."""
        return _ALONE if self._calls == 1 else _SLICE

    def _call_off(self) -> None:
        if self._off is not None and not self._off.is_set():
            self._off.set()
            self._wake()
            # Once more, should it have looked before and not yet been asleep.
            asyncio.get_running_loop().call_later(_ASLEEP, self._wake)


async def to_its_end(call: Future[T]) -> T:
    """Wait for a call, also when the task is cancelled meanwhile: that is raised afterwards."""
    waiting = asyncio.wrap_future(call)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await asyncio.wait([waiting])
        waiting.exception()  # nobody else asks for it
        raise


class Handle:
    """A handle whose calls run one after another in a thread of its own."""

    def __init__(self, handle: Resource) -> None:
        self._handle = handle
        self._thread = ThreadPoolExecutor(1, "kmq-aio")

    def __repr__(self) -> str:
        return f"aio.{self._handle!r}"

    def __dir__(self) -> list[str]:
        twins = (name for name in dir(self._handle) if not name.startswith("_"))
        return sorted({*super().__dir__(), *(name for name in twins if hasattr(self, name))})

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        raise stays_here(type(self).__name__)

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return await asyncio.wrap_future(self._submit(call, *arguments, **options))

    def _submit(self, call: Callable[..., T], *arguments: Any, **options: Any) -> Future[T]:
        try:
            return self._thread.submit(call, *arguments, **options)
        except RuntimeError:
            raise ClosedError("the handle is closed") from None

    async def close(self) -> None:
        """Close it, as the twin does; again is no error."""
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        self._handle._check_open()
        return self

    async def __aexit__(self, *raised: object) -> None:
        # From another thread: a call that waits in ours is ended by it.
        await asyncio.to_thread(self._handle.__exit__, *raised)  # type: ignore[arg-type]
        self._thread.shutdown(wait=False)


class Receiver(Handle):
    """A handle of many threads: what waits for records in one keeps no other call waiting."""

    def __init__(self, handle: Resource) -> None:
        super().__init__(handle)
        #: For all calls but those that receive.
        self._other_calls = Handle(handle)

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return await self._other_calls._run(call, *arguments, **options)

    async def _received(
        self, receive: Callable[..., T], give_back: Callable[[T], object], seconds: float
    ) -> T:
        """What was received; given back when the task is cancelled meanwhile."""
        future = self._submit(receive, timeout=seconds)
        waiting = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.add_done_callback(asyncio.Future.exception)  # nobody asks for it any more
            future.add_done_callback(lambda done: done.exception() or give_back(done.result()))
            raise

    async def __aexit__(self, *raised: object) -> None:
        await super().__aexit__(*raised)
        self._other_calls._thread.shutdown(wait=False)


class Opening(Generic[H]):
    """A handle on its way: await it, or enter it with `async with`."""

    def __init__(self, opened: Callable[[], Awaitable[H]]) -> None:
        self._open = opened
        self._opened: H | None = None

    def __await__(self) -> Generator[Any, None, H]:
        return self._open().__await__()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name}: this handle is not open yet; await it, or enter it with `async with`",
            name=name,
            obj=self,
        )

    async def __aenter__(self) -> H:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *raised: object) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(*raised)
