"""What all handles for asyncio share: a thread of their own, and ways to open them."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from operator import attrgetter
from typing import Any, Generic, Self, TypeVar

from kmq_spark.client.handles.arguments import checked_timeout
from kmq_spark.client.handles.at_end import before_threads_end
from kmq_spark.client.handles.living import Living
from kmq_spark.client.handles.resource import Resource, StaysHere
from kmq_spark.errors import ClosedError
from kmq_storage.waking import Flag

T = TypeVar("T")
H = TypeVar("H", bound="Handle[Any]")
R = TypeVar("R", bound=Resource)

#: Seconds that a call waits while others of its handle wait for something else.
_SLICE = 0.2
#: Seconds by which that grows each time another call's time is over.
_TURN = 0.001
#: Practically for ever.
_ALONE = 3600.0
#: By then, a thread that was about to sleep when it was told to end mostly sleeps.
_ASLEEP = 0.02


@dataclass(eq=False, slots=True)
class Call:
    """A call of a handle: one that has its turn, or waits for it."""

    #: When it should be done (seconds of a monotonic clock).
    deadline: float = 0.0
    #: Whether it had its turn.
    looked: bool = False
    #: How often in a row its wait was cut short by a call whose time was over.
    cuts: int = 0


class GivingWay:
    """Has a call that waits for records sleep, until another call needs the handle's thread."""

    def __init__(self, wake: Callable[[], None], *, alike: bool = True) -> None:
        """Calls that are not `alike` wait for different things, so they take turns."""
        self._wake = wake
        self._alike = alike
        #: The calls that are not done.
        self._calls = set[Call]()
        #: Tells the call that waits in the thread to end.
        self._asleep: Flag | None = None
        _givers.add(self)

    @contextmanager
    def call(self, deadline: float = 0.0) -> Iterator[Call]:
        """Wraps each call: a waiting call gives way to it."""
        call = Call(deadline)
        self._calls.add(call)  # first: a call that begins to wait meanwhile counts it
        try:
            self._call_off(self._asleep)
            yield call
        finally:
            self._calls.discard(call)

    async def until_found(self, take: Callable[[Call], Awaitable[T]], timeout: float | None) -> T:
        """Take again and again, since each may be told to end, for `timeout` seconds at most."""
        limit = checked_timeout(timeout)
        deadline = math.inf if limit is None else time.monotonic() + limit
        with self.call(deadline) as call:
            while True:
                found = await take(call)
                if found or time.monotonic() >= deadline:
                    return found

    @contextmanager
    def wait(self, call: Call, take: Callable[..., T]) -> Iterator[Callable[[], T]]:
        """For a call that waits: what is to run in the thread."""
        off = Flag()

        def taken() -> T:
            self._asleep = off  # set before it is known for how long
            try:
                return take(timeout=self._longest(call), stopped=off.is_set)
            finally:
                self._asleep = None

        try:
            yield taken
        except asyncio.CancelledError:
            self._call_off(off)
            raise

    def _longest(self, call: Call) -> float:
        """How long a call may wait in one go: until one of all is to be done.

        A call whose time is over and that does not end, for example since its loop is blocked, is
        looked at less and less often.
        """
        now, others = time.monotonic(), [each for each in list(self._calls) if each is not call]
        first = min((self._due(each) for each in others), default=math.inf) - now
        patience = min(_SLICE, _TURN * call.cuts)
        call.looked, call.cuts = True, call.cuts + 1 if first <= 0.0 else 0
        most = _SLICE if others and not self._alike else _ALONE
        return max(0.0, min(call.deadline - now, max(first, patience), most))

    def _due(self, call: Call) -> float:
        """When it needs its turn; for something else it might be there already."""
        return call.deadline if call.looked or self._alike else 0.0

    def _call_off(self, off: Flag | None) -> None:
        if off is not None and not off.is_set():
            off.set()
            self._wake_until_over(off, asyncio.get_running_loop())

    def _wake_until_over(self, off: Flag, loop: asyncio.AbstractEventLoop) -> None:
        if self._asleep is off:
            self._wake_quietly()
            loop.call_later(_ASLEEP, self._wake_until_over, off, loop)

    def end(self) -> None:
        """End all waiting: the process ends, and waits for its threads."""
        self._calls.add(Call())  # one whose time is over, and which never ends
        if self._asleep is not None:
            self._asleep.set()
            self._wake_quietly()

    def _wake_quietly(self) -> None:
        with suppress(ClosedError):  # closing woke them
            self._wake()


#: Those of all handles of this process.
_givers = Living[GivingWay]()
_threads_end = Flag()


def _end_waits() -> None:
    _threads_end.set()
    for each in _givers.all():
        each.end()


before_threads_end(_end_waits)
os.register_at_fork(after_in_child=_givers.clear)  # the parent's threads wait in the parent only


async def to_its_end(call: Future[T]) -> T:
    """Wait for a call to its end; a cancellation of the task is raised afterwards."""
    waiting = asyncio.wrap_future(call)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        await asyncio.wait([waiting])
        waiting.exception()  # so that asyncio doesn't report it
        raise


def _awaited(twin: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """A call of the twin that runs in the handle's thread, with the twin's arguments and help."""

    @wraps(twin)
    async def call(self: Handle[Any], /, *arguments: Any, **options: Any) -> T:
        return await self._run(partial(twin, self._handle), *arguments, **options)

    return call


def _forwarded(name: str) -> property:
    return property(attrgetter(f"_handle.{name}"))


class Handle(StaysHere, Generic[R]):
    """A handle whose calls run one after another in a thread of its own."""

    def __init_subclass__(cls, *, twin: type[Resource] | None = None) -> None:
        """Add what the `twin` has and this class has not."""
        for name in dir(twin) if twin else ():
            if not name.startswith("_") and not hasattr(cls, name):
                own = getattr(twin, name)
                setattr(cls, name, _awaited(own) if callable(own) else _forwarded(name))

    def __init__(self, handle: R) -> None:
        self._handle = handle
        self._thread = ThreadPoolExecutor(1, "kmq-aio")

    def __repr__(self) -> str:
        return f"aio.{self._handle!r}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return await asyncio.wrap_future(self._submit(call, *arguments, **options))

    def _submit(self, call: Callable[..., T], *arguments: Any, **options: Any) -> Future[T]:
        try:
            return self._thread.submit(call, *arguments, **options)
        except RuntimeError:
            if _threads_end.is_set() and threading.current_thread().daemon:
                return Future()  # never done: its task ends with its thread
            raise ClosedError("the handle is closed") from None

    async def close(self) -> None:
        """Close the handle; a second call does nothing."""
        await self.__aexit__(None, sys.exception(), None)

    async def __aenter__(self) -> Self:
        self._handle._check_open()
        return self

    async def __aexit__(self, *raised: object) -> None:
        # From another thread, which ends a call that waits in ours.
        await asyncio.to_thread(self._handle.__exit__, *raised)  # type: ignore[arg-type]
        self._thread.shutdown(wait=False)


class Receiver(Handle[R]):
    """A handle with several threads: a call that waits for records delays no other call."""

    def __init__(self, handle: R, giving_way: GivingWay) -> None:
        super().__init__(handle)
        #: The thread of all calls but those that receive.
        self._other_calls = Handle(handle)
        self._giving_way = giving_way
        #: Cancelled calls, until what they got is given back.
        self._cancelled = set[Future[None]]()

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return await self._other_calls._run(call, *arguments, **options)

    async def _received(
        self, receive: Callable[..., T], give_back: Callable[[T], object], timeout: float | None
    ) -> T:
        """What was received; given back when the task is cancelled meanwhile."""

        async def received(call: Call) -> T:
            with self._giving_way.wait(call, receive) as taken:
                future = self._submit(taken)
                waiting = asyncio.wrap_future(future)
                try:
                    return await asyncio.shield(waiting)
                except asyncio.CancelledError:
                    if not future.cancel():  # it runs, or is done
                        waiting.add_done_callback(asyncio.Future.exception)  # nobody else asks
                        self._take_back(future, give_back)
                    raise

        return await self._giving_way.until_found(received, timeout)

    def _take_back(self, received: Future[T], give_back: Callable[[T], object]) -> None:
        over = Future[None]()
        self._cancelled.add(over)

        def given(done: Future[T]) -> None:
            try:
                if done.exception() is None:
                    give_back(done.result())
            finally:
                self._cancelled.discard(over)
                over.set_result(None)

        received.add_done_callback(given)

    async def _gave_back(self) -> None:
        """Return when what cancelled calls got is given back, which takes an open store."""
        for each in list(self._cancelled):
            await asyncio.shield(asyncio.wrap_future(each))

    async def __aexit__(self, *raised: object) -> None:
        await super().__aexit__(*raised)
        self._other_calls._thread.shutdown(wait=False)
        await self._gave_back()


_NOT_OPEN = "this handle is not open yet; await it, or enter it with `async with`"


class Opening(Generic[H]):
    """A handle that is being opened: await it, or enter it with `async with`."""

    def __init__(self, opened: Callable[[], Awaitable[H]]) -> None:
        self._open = opened
        self._opened: H | None = None

    def __await__(self) -> Generator[Any, None, H]:
        return self._open().__await__()

    def __getattr__(self, name: str) -> Any:
        if self._opened is None:
            raise AttributeError(f"{name}: {_NOT_OPEN}", name=name, obj=self)
        return getattr(self._opened, name)  # it was entered without `as`

    def __aiter__(self) -> Any:
        if self._opened is None:
            raise TypeError(_NOT_OPEN)
        return aiter(self._opened)

    async def __aenter__(self) -> H:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *raised: object) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(*raised)
