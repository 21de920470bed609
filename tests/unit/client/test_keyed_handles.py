"""Handles of keyed queues: each is closed alone, and a closed one says so.

Finds: a handle that can't be closed, or closes others; puts that are pending when a `with` block
ends; a closed handle that goes on.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.keyed.queues import KeyedQueues


def test_closing_waits_for_what_was_put_also_after_an_error(store: kmq.Store):
    with pytest.raises(ZeroDivisionError), store.keyed_queues("inbox") as queues:
        put = queues.put("a", b"1")
        raise ZeroDivisionError
    assert put.done()
    assert put.result() == 0
    assert store.keyed_queues("inbox").get("a", 0, 9) == [b"1"]


_CALLS: dict[str, Callable[[KeyedQueues], Any]] = {
    "put": lambda queues: queues.put("a", b"x"),
    "put_batch": lambda queues: queues.put_batch(["a"], [b"x"]),
    "delete": lambda queues: queues.delete("a"),
    "get": lambda queues: queues.get("a", 0, 1),
    "get_arrow": lambda queues: queues.get_arrow("a", 0, 1),
    "get_many": lambda queues: queues.get_many(["a"], 0, 1),
    "size": lambda queues: queues.size("a"),
    "span": lambda queues: queues.span("a"),
    "names": lambda queues: queues.names(),
    "receive": lambda queues: queues.receive("a"),
    "lag": lambda queues: queues.lag("a"),
    "flush": lambda queues: queues.flush(),
    "put_batch of none": lambda queues: queues.put_batch([], []),
    "delete of none": lambda queues: queues.delete(),
    "ack of none": lambda queues: queues.ack([]),
}


@pytest.mark.parametrize("name", _CALLS)
def test_a_closed_handle_says_so(store: kmq.Store, name: str):
    queues = store.keyed_queues("inbox")
    queues.put("a", b"1").result()
    queues.close()
    queues.close()
    with pytest.raises(kmq.ClosedError, match="take them from the store again"):
        _CALLS[name](queues)


@pytest.mark.parametrize("name", _CALLS)
def test_a_handle_of_a_closed_store_says_so(tmp_path: Path, name: str):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
    with pytest.raises(kmq.ClosedError, match="closed"):
        _CALLS[name](queues)


def test_other_handles_and_deliveries_go_on_when_one_is_closed(store: kmq.Store):
    queues, other = store.keyed_queues("inbox"), store.keyed_queues("inbox")
    queues.put("a", b"1").result()
    (delivery,) = queues.receive("a")
    queues.close()
    assert other.put("a", b"2").result() == 1
    delivery.ack()
    assert other.lag("a") == 1


def test_a_receive_that_waits_ends_when_its_handle_is_closed_and_takes_nothing(store: kmq.Store):
    queues, told = store.keyed_queues("k"), list[BaseException]()

    def wait() -> None:
        with pytest.raises(kmq.ClosedError, match="keyed queues are closed") as closed:
            queues.receive("a", timeout=None)
        told.append(closed.value)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(0.1)
    queues.close()
    waiting.join(30)
    assert len(told) == 1
    with store.keyed_queues("k") as others:
        others.put("a", b"1").result()
        assert [each.delivery_count for each in others.receive("a")] == [1]


def test_a_handle_whose_store_was_closed_is_closed_without_an_error(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        queues.put("a", b"1")
    queues.close()


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("sealed", [False, True])
def test_indexes_are_told_when_handle_and_store_are_closed(
    tmp_path: Path, durability: str, *, sealed: bool
):
    with kmq.open(tmp_path / "store", durability=durability) as store:
        with store.keyed_queues("inbox") as queues:
            first = queues.put("a", b"1")
            puts = [queues.put("a", b"%d" % n) for n in range(3)]
            batch = queues.put_batch(["b", "a", "b"], [b"x", b"y", b"z"])
        assert first.result() == 0
        if sealed:
            store.seal()
        store.keyed_queues("inbox").put("a", b"later").result()
    assert [put.result() for put in puts] == [1, 2, 3]
    assert list(batch) == [0, 4, 1]
    assert list(batch) == [0, 4, 1]


@pytest.mark.parametrize("another", [False, True])
def test_indexes_of_a_store_that_is_gone_are_not_told(tmp_path: Path, *, another: bool):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        put, many = queues.put("a", b"1"), queues.put_batch(["a"], [b"2"])
    shutil.rmtree(tmp_path / "store")
    if another:
        with kmq.open(tmp_path / "store") as store:
            store.keyed_queues("inbox").put_batch(["a"] * 9, [b"x"] * 9)
    for look in (put.result, lambda: many[0]):
        with pytest.raises(kmq.ClosedError, match=r"are stored, but .* not there any more"):
            look()


@pytest.mark.parametrize("closed", [False, True])
def test_the_index_of_a_message_of_a_deleted_topic_is_not_that_of_another(
    tmp_path: Path, *, closed: bool
):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        puts = [queues.put("a", b"%d" % n) for n in range(3)]
        queues.flush()
        many = queues.put_batch(["a"] * 200, [b"x" * 1000] * 200)
        store.delete_topic("inbox")
        looks = (puts[0].result, puts[2].result, lambda: list(many))
        for look in looks:
            with pytest.raises(kmq.NotFoundError, match="doesn't exist"):
                look()
        store.keyed_queues("inbox").put_batch(["b"] * 1000, [b"y"] * 1000)
        if not closed:
            for look in looks:
                with pytest.raises(kmq.NotFoundError, match="deleted since, and another"):
                    look()
            assert queues.put("a", b"new").result() == 0
    if closed:
        for look in looks:
            with pytest.raises(kmq.NotFoundError, match="deleted since, and another"):
                look()


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_callback_that_would_wait_for_itself_is_refused_and_stores_nothing(
    tmp_path: Path, durability: str
):
    with kmq.open(tmp_path / "store", durability=durability) as store:
        queues = store.keyed_queues("inbox")
        calls: list[Callable[[], Any]] = [
            lambda: queues.put_batch(["a"], [b"2"]),
            lambda: queues.put_arrow(pa.table({"queue": ["a"], "value": [b"2"]})),
            lambda: queues.delete("a"),
            lambda: queues.put("b", b"waited for").result(),
        ]
        told, done = list[str](), threading.Event()

        def call_all(_: object) -> None:
            for call in calls:
                try:
                    call()
                except kmq.IllegalStateError as error:
                    told.append(error.message)
            queues.put("c", b"not waited for")
            done.set()

        queues.put("a", b"1").add_done_callback(call_all)
        assert done.wait(60), "nothing hangs"
        assert len(told) == len(calls)
        assert all("a callback can't wait" in message for message in told)
        queues.flush()
        assert queues.get("a", 0, 9) == [b"1"]
        assert [queues.size(name) for name in ("b", "c")] == [1, 1], "what was sent is stored"
