"""What all handles of asyncio have in common: a thread of their own, and ways to be opened."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, NoReturn, Self, SupportsIndex, TypeVar
from weakref import WeakSet

from kmq_spark.client.arguments import checked_timeout
from kmq_spark.client.at_end import before_threads_end
from kmq_spark.client.resource import Resource, Stopped, stays_here
from kmq_spark.errors import ClosedError

T = TypeVar("T")
H = TypeVar("H", bound="Handle")

#: A thread that waits looks this often whether its task was cancelled (seconds).
_SLICE = 0.2
#: As good as for ever.
_ALONE = 3600.0
#: A thread that was about to sleep does so by then.
_ASLEEP = 0.02


async def in_slices(take: Callable[[float], Awaitable[T]], timeout: float | None) -> T:
    """Take again and again, with the seconds that are left, since each may be told to end.

    What came, or what the last gave when nothing came within `timeout` seconds.
    """
    limit = checked_timeout(timeout)
    now = asyncio.get_running_loop().time
    deadline = math.inf if limit is None else now() + limit
    while True:
        found = await take(max(0.0, deadline - now()))
        if found or now() >= deadline:
            return found


class GivingWay:
    """Has the call of a handle that waits for records sleep, until another one needs its thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        #: Calls of the handle that are not done, whether they have their turn or wait for it.
        self._calls = set[object]()
        #: Tell the calls that wait in the thread, or for it, to end.
        self._waits = set[threading.Event]()
        _givers.add(self)

    @contextmanager
    def call(self) -> Iterator[None]:
        """For each call: who waits gives way."""
        me = object()
        self._calls.add(me)  # before: who begins to wait meanwhile, in another loop, counts it
        try:
            self._call_off(*self._waits)
            yield
        finally:
            self._calls.discard(me)

    @contextmanager
    def wait(self, left: float) -> Iterator[tuple[float, Stopped]]:
        """For a call that waits in the thread: how long it may in one go, and whether it is to end.

        Those of several tasks take turns.
        """
        off = threading.Event()
        self._waits.add(off)
        try:
            yield min(left, _ALONE if len(self._calls) == 1 else _SLICE), off.is_set
        except asyncio.CancelledError:
            self._call_off(off)
            raise
        finally:
            self._waits.discard(off)

    def _call_off(self, *waits: threading.Event) -> None:
        if waits and not all(off.is_set() for off in waits):
            for off in waits:
                off.set()
            self._wake_quietly()
            # Once more, should one have looked before and not yet been asleep.
            asyncio.get_running_loop().call_later(_ASLEEP, self._wake_quietly)

    def end(self) -> None:
        """Have who waits end, since the process does and waits for its threads."""
        for off in list(self._waits):
            off.set()
            self._wake_quietly()

    def _wake_quietly(self) -> None:
        with suppress(ClosedError):  # closing woke them
            self._wake()


#: Of all handles of this process.
_givers = WeakSet[GivingWay]()


def _end_waits() -> None:
    for each in list(_givers):
        each.end()


before_threads_end(_end_waits)
os.register_at_fork(after_in_child=_givers.clear)  # the parent's threads wait there alone


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

    def __init__(self, handle: Resource, wake: Callable[[], None]) -> None:
        super().__init__(handle)
        #: For all calls but those that receive.
        self._other_calls = Handle(handle)
        self._giving_way = GivingWay(wake)

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return await self._other_calls._run(call, *arguments, **options)

    async def _received(
        self, receive: Callable[..., T], give_back: Callable[[T], object], timeout: float | None
    ) -> T:
        """What was received; given back when the task is cancelled meanwhile."""

        async def received(left: float) -> T:
            with self._giving_way.wait(left) as (seconds, stopped):
                future = self._submit(receive, timeout=seconds, stopped=stopped)
                waiting = asyncio.wrap_future(future)
                try:
                    return await asyncio.shield(waiting)
                except asyncio.CancelledError:
                    if not future.cancel():  # it runs, or is done
                        waiting.add_done_callback(asyncio.Future.exception)  # nobody else asks
                        future.add_done_callback(partial(_given_back, give_back))
                    raise

        with self._giving_way.call():
            return await in_slices(received, timeout)

    async def __aexit__(self, *raised: object) -> None:
        await super().__aexit__(*raised)
        self._other_calls._thread.shutdown(wait=False)


def _given_back(give_back: Callable[[T], object], done: Future[T]) -> None:
    if done.exception() is None:
        give_back(done.result())


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
