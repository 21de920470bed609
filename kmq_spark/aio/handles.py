"""What all handles of asyncio have in common: a thread of their own, and ways to be opened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, NoReturn, Self, SupportsIndex, TypeVar

from kmq_spark.client.arguments import checked_timeout
from kmq_spark.client.resource import Resource, stays_here
from kmq_spark.errors import ClosedError

T = TypeVar("T")
H = TypeVar("H", bound="Handle")

#: A thread that waits looks this often whether its task was cancelled (seconds).
_SLICE = 0.2


async def in_slices(take: Callable[[float], Awaitable[T]], timeout: float | None) -> T:
    """Take for a slice of the time after the other, so that a cancelled wait soon frees a thread.

    What came, or what the last slice gave when nothing came within `timeout` seconds.
    """
    limit = checked_timeout(timeout)
    now = asyncio.get_running_loop().time
    deadline = None if limit is None else now() + limit
    while True:
        found = await take(_SLICE if deadline is None else min(_SLICE, max(0.0, deadline - now())))
        if found or (deadline is not None and now() >= deadline):
            return found


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
