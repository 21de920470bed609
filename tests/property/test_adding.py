"""What is compiled of adding a record to what waits does what the way in Python does.

Else records, or the moment at which they are committed, would depend on a compiler.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.client import compiled
from kmq_spark.client.encoding.waiting_extras import waiting_extras
from kmq_spark.client.handles.send_future import SendFuture
from kmq_spark.client.sending.pending import Pending
from kmq_spark.client.sending.plain_adding import PlainAdding
from kmq_storage.environment import SYSTEM

pytestmark = pytest.mark.skipif(not compiled.is_there, reason="nothing compiled it")


class _Name(str):
    """A topic as an enumeration of a caller's may name it."""

    __slots__ = ()


class _Bytes(bytes):
    """A value that knows more than its bytes."""


_TOPICS = st.sampled_from(
    ["a", "b", _Name("a"), "queue:q", _Name("queue:q"), "not a name", "", b"a", None, ["a"]]
)
_VALUES = st.none() | st.binary(max_size=300) | st.builds(_Bytes, st.binary(max_size=3))
_EXTRAS = st.sampled_from([
    None,
    waiting_extras({"h": b"x"}, {"n": 1}),
    waiting_extras([("h", b"x"), ("h", None)], None),
    waiting_extras(None, None, 2),
])  # fmt: skip
_CALLS = st.tuples(_TOPICS, _VALUES, st.none() | st.binary(max_size=9), _EXTRAS, st.booleans())


def _pending(now_ns: Callable[[], int] = SYSTEM.now_ns) -> Pending:
    environment = replace(SYSTEM, now_ns=now_ns)
    return Pending(environment, linger=30.0, batch_bytes=500, max_bytes=1 << 20)


def _callback(*_told: object) -> None:
    """Somebody's."""


def _answer(add: Callable[..., SendFuture[Any]], call: tuple[Any, ...]) -> Any:
    *record, calls_back = call
    try:
        future = add(*record, _callback if calls_back else None)
    except Exception as error:
        return type(error), str(error)
    return type(future), future[0].topic, future[1], future.done()


def _state(pending: Pending) -> Any:
    waiting: list[Any] = list(pending._waiting)
    columns = "topic", "values", "keys", "times", "extras", "size", "alarm", "user_callbacks"
    return list(pending._open), [[getattr(rows, c) for c in columns] for rows in waiting]


@given(calls=st.lists(_CALLS, max_size=30))
def test_what_waits_is_the_same_either_way(calls: list[tuple[Any, ...]]):
    now = [0]
    quick, plain = _pending(lambda: now[0]), _pending(lambda: now[0])
    for now[0], call in enumerate(calls):
        assert _answer(quick.add, call) == _answer(PlainAdding(plain, 0).add, call)
        assert _state(quick) == _state(plain)


def test_a_record_that_meets_a_taken_lock_waits_for_it():
    pending = _pending()
    pending.add("t", b"first", None, None, None)
    with pending._lock:
        thread = threading.Thread(target=pending.add, args=("t", b"second", None, None, None))
        thread.start()
        thread.join(0.05)
        assert len(pending._open["t"]) == 1
    thread.join(10.0)
    assert pending._open["t"].values == [b"first", b"second"]


def test_threads_that_add_while_others_take_lose_nothing():
    pending, begun = _pending(), threading.Barrier(5)
    taken: list[Any] = []

    def send(thread: int) -> None:
        begun.wait()
        for n in range(3_000):
            pending.add("t", b"%d %d" % (thread, n), None, None, None)

    def take() -> None:
        begun.wait()
        while sum(map(len, taken)) < 12_000:
            taken.extend(pending.take()[1])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(lambda work: work(), [lambda n=n: send(n) for n in range(4)] + [take]))
    finally:
        sys.setswitchinterval(interval)
    values = [value for rows in taken for value in rows.values]
    assert all(len(r.values) == len(r.keys) == len(r.times) for r in taken)
    for thread in range(4):
        mine = [value for value in values if value.startswith(b"%d " % thread)]
        assert mine == [b"%d %d" % (thread, n) for n in range(3_000)]
