"""What `on_assign`, `on_revoke` and `on_lost` may do with the consumer that calls them.

Finds: callbacks that can't seek or commit, positions that forget what a callback chose, and
callbacks that see what is in flux.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import kmq_spark as kmq
from tests.support.members import without_watch


@pytest.fixture
def shop(store: kmq.Store) -> kmq.Store:
    """Topic `t` with the records 0 to 9 in each of its two partitions."""
    store.create_topic("t", partitions=2)
    with store.producer() as producer:
        for number in range(20):
            producer.send("t", b"%d" % (number // 2), partition=number % 2)
    return store


def _values(records: list[kmq.Record], partition: int) -> list[int]:
    return [int(record.value) for record in records if record.partition == partition]


def test_on_assign_may_seek_and_pause_and_ask_for_positions(shop: kmq.Store):
    told: list[Any] = []

    def assigned(partitions: dict[str, list[int]]) -> None:
        told.append(consumer.position())
        consumer.seek("t", 0, 7)
        consumer.pause({"t": [1]})
        told.append((partitions, consumer.assignment(), consumer.position(), consumer.lag()))

    with shop.consumer("g") as consumer:
        consumer.subscribe(["t"], on_assign=assigned)
        records = consumer.consume(timeout=0)
    places = {"t": {0: 7, 1: 0}}
    assert told[0] == {"t": {0: 0, 1: 0}}
    assert told[1] == ({"t": [0, 1]}, {"t": [0, 1]}, places, {"t": {0: 3, 1: 10}})
    assert (_values(records, 0), _values(records, 1)) == ([7, 8, 9], [])


@pytest.mark.parametrize("take", ["poll", "consume", "consume_arrow"])
def test_nothing_is_handed_out_of_a_deleted_topic_once_its_loss_was_told(
    shop: kmq.Store, take: str
):
    lost: list[dict[str, list[int]]] = []
    with shop.consumer("g") as consumer:
        consumer.subscribe(["t"], on_lost=lost.append)
        assert consumer.poll()  # others are in hand
        shop.delete_topic("t")
        assert consumer.assignment() == {}
        assert lost == [{"t": [0, 1]}]
        assert not getattr(consumer, take)(timeout=0)


@pytest.mark.parametrize("end", ["close", "unsubscribe", "leave the block"])
def test_on_revoke_may_commit_what_was_handed_out(shop: kmq.Store, end: str):
    with shop.consumer("g") as consumer:
        consumer.subscribe(["t"], on_revoke=lambda _: consumer.commit())
        for _ in range(3):  # others are in hand, and not committed
            assert consumer.poll()
        expected = consumer.position()
        if end != "leave the block":
            getattr(consumer, end)()
    assert sum(expected["t"].values()) == 3
    assert shop.describe_group("g").committed == expected


def test_on_revoke_may_commit_when_another_thread_closes(shop: kmq.Store):
    consumer = shop.consumer("g")
    consumer.subscribe(["t"], on_revoke=lambda _: consumer.commit({"t": {0: 4}}))
    closing = threading.Thread(target=consumer.close)
    closing.start()
    closing.join(10)
    assert shop.describe_group("g").committed == {"t": {0: 4}}


def test_on_revoke_of_a_topic_that_is_gone_commits_the_others(shop: kmq.Store):
    shop.create_topic("gone")
    consumer = shop.consumer("g")
    consumer.subscribe(["t", "gone"], on_revoke=lambda _: consumer.commit())
    assert len(consumer.consume(timeout=0)) == 20
    shop.delete_topic("gone")
    consumer.close()
    assert shop.describe_group("g").committed == {"t": {0: 10, 1: 10}}


def test_a_seek_while_a_call_has_records_already_stands(shop: kmq.Store):
    """The new topic is seen by the call that took all of `t`; it goes back to the start of it."""

    def assigned(partitions: dict[str, list[int]]) -> None:
        if "u" in partitions:
            consumer.seek_to_beginning({"t": [0, 1]})
            consumer.pause()

    with without_watch():
        consumer = shop.consumer("g")
    with consumer:
        consumer.subscribe(pattern="t|u", on_assign=assigned)
        shop.create_topic("u")
        assert len(consumer.consume(20 + 1, timeout=0)) == 20
        assert consumer.position() == {"t": {0: 0, 1: 0}, "u": {0: 0}}
        consumer.resume()
        assert _values(consumer.consume(timeout=0), 0) == list(range(10))


def test_a_callback_may_neither_read_nor_subscribe(shop: kmq.Store):
    told: list[str] = []

    def assigned(_: object) -> None:
        calls: list[Callable[[], Any]] = [
            consumer.poll, consumer.consume, consumer.consume_arrow, consumer.unsubscribe,
            lambda: consumer.subscribe(["t"]), lambda: consumer.assign({"t": [0]}),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(kmq.IllegalStateError, match="callback"):
                call()
            told.append("refused")

    with shop.consumer("g") as consumer:
        consumer.subscribe(["t"], on_assign=assigned)
        assert told == 6 * ["refused"]
        assert len(consumer.consume(timeout=0)) == 20


def test_other_threads_are_refused_during_a_callback(shop: kmq.Store):
    refused: list[Exception] = []

    def other() -> None:
        try:
            consumer.position()
        except kmq.IllegalStateError as error:
            refused.append(error)

    def assigned(_: object) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(10)

    with shop.consumer("g") as consumer:
        consumer.subscribe(["t"], on_assign=assigned)
    assert "one thread at a time" in str(refused[0])


def test_after_a_callback_that_failed_the_consumer_is_used_as_before(shop: kmq.Store):
    def assigned(_: object) -> None:
        raise ValueError("mine")

    with shop.consumer("g") as consumer:
        with pytest.raises(ValueError, match="mine"):
            consumer.subscribe(["t"], on_assign=assigned)
        shop.add_partitions("t", 3)
        with pytest.raises(ValueError, match="mine"):  # partition 2 is seen, so told, too
            consumer.position()
        assert len(consumer.consume(timeout=0)) == 20


def test_what_a_callback_changes_is_told_after_it(shop: kmq.Store):
    told: list[tuple[str, Any]] = []

    def lost(partitions: dict[str, list[int]]) -> None:
        shop.create_topic("u", exist_ok=True)
        if "v" not in partitions:
            shop.delete_topic("v")
        told.append(("lost", partitions))
        told.append(("left", consumer.assignment()))

    shop.create_topic("v")
    with shop.consumer() as consumer:
        consumer.subscribe(
            pattern="t|u|v", on_lost=lost, on_assign=lambda p: told.append(("assigned", p))
        )
        assert len(consumer.consume(timeout=0)) == 20
        told.clear()
        shop.delete_topic("t")
        for _ in range(2):
            assert consumer.poll() is None
    assert told == [
        ("lost", {"t": [0, 1]}),
        ("left", {"v": [0]}),
        ("assigned", {"u": [0]}),
        ("lost", {"v": [0]}),
        ("left", {"u": [0]}),
    ]


def test_a_callback_that_fails_keeps_its_partitions_until_it_succeeds(store: kmq.Store):
    store.create_topic("t", partitions=2)
    failures = [ValueError("not yet")]

    def finish(partitions: dict[str, list[int]]) -> None:
        if failures:
            raise failures.pop()

    first = store.consumer("g")
    first.subscribe(["t"], on_revoke=finish)
    first.assignment()
    second = store.consumer("g", topics=["t"])
    with pytest.raises(ValueError, match="not yet"):
        first.assignment()
    assert second.assignment() == {}
    assert first.assignment() == {"t": [0]}
    assert second.assignment() == {"t": [1]}
    failures.append(ValueError("when it closes"))
    with pytest.raises(ValueError, match="when it closes"):
        first.close()
    assert second.assignment() == {"t": [0, 1]}


def test_what_a_callback_gave_away_is_gone_though_the_log_can_not_be_read_then(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t", partitions=2)
    told: list[dict[str, list[int]]] = []
    first = store.consumer("g")
    refresh = first._log.refresh

    def fail_once() -> Any:
        monkeypatch.setattr(first._log, "refresh", refresh)
        raise kmq.errors.UnavailableError("not now")

    def finish(partitions: dict[str, list[int]]) -> None:
        if not told:
            monkeypatch.setattr(first._log, "refresh", fail_once)
        told.append(partitions)

    first.subscribe(["t"], on_revoke=finish)
    first.assignment()
    with store.consumer("g", topics=["t"]) as second:
        assert first.assignment() == {"t": [0]}
        assert second.assignment() == {"t": [1]}
        assert told == [{"t": [1]}]
    first.close()


def _fails(partitions: dict[str, list[int]]) -> None:
    raise ValueError("never")


def test_others_wait_no_longer_than_max_poll_interval_for_a_callback_that_fails(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t", partitions=2)
    first = store.consumer("g", max_poll_interval=77.0, auto_commit=True)
    first.subscribe(["t"], on_revoke=_fails)
    assert first.assignment() == {"t": [0, 1]}
    second = store.consumer("g", topics=["t"])
    for _ in range(3):
        with pytest.raises(ValueError, match="never"):
            first.consume(timeout=0.0)
    assert second.assignment() == {}
    assert first._assignment._patience == 77.0
    monkeypatch.setattr(first._assignment, "_patience", 0.0)  # as if that were over
    with pytest.raises(ValueError, match="never"):
        first.consume(timeout=0.0)
    assert second.assignment() == {"t": [1]}
    assert first.assignment() == {"t": [0]}
    with pytest.raises(ValueError, match="never"):
        first.close()


def test_patience_with_a_callback_that_fails_begins_anew_when_nobody_waits(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t", partitions=2)
    first = store.consumer("g")
    first.subscribe(["t"], on_revoke=_fails)
    first.assignment()
    with store.consumer("g", topics=["t"]), pytest.raises(ValueError, match="never"):
        first.consume(timeout=0.0)
    assert first.assignment() == {"t": [0, 1]}
    assert first._assignment._failing_since is None
    with pytest.raises(ValueError, match="never"):
        first.close()


@pytest.mark.parametrize("way", ["subscribe", "unsubscribe", "assign"])
def test_a_callback_that_fails_can_be_replaced(store: kmq.Store, way: str):
    store.create_topic("t", partitions=2)
    store.create_topic("other")
    arguments = {"subscribe": [["other"]], "unsubscribe": [], "assign": [{"t": [1]}]}[way]
    with store.consumer("g" if way != "assign" else None) as consumer:
        consumer.subscribe(["t"], on_revoke=_fails)
        with pytest.raises(ValueError, match="never"):
            getattr(consumer, way)(*arguments)
        found = {"subscribe": {"other": [0]}, "unsubscribe": {}, "assign": {"t": [1]}}[way]
        assert consumer.assignment() == found
        getattr(consumer, way)(*arguments)


@pytest.mark.parametrize("call", ["consume", "consume_arrow"])
def test_what_a_callback_raises_while_a_call_has_records_is_raised_by_the_next_call(
    shop: kmq.Store, call: str
):
    told: list[object] = []

    def assigned(partitions: dict[str, list[int]]) -> None:
        told.append(partitions)
        if len(told) > 1:
            raise RuntimeError("my database is down")

    with without_watch():
        consumer = shop.consumer("g")
    with consumer:
        consumer.subscribe(["t"], on_assign=assigned)
        other = shop.consumer("g", topics=["t"])
        assert (consumer.assignment(), other.assignment()) == ({"t": [0]}, {"t": [1]})
        other.close()
        assert len(getattr(consumer, call)()) == 10  # it looks at the group when it has them
        assert told == [{"t": [0, 1]}, {"t": [1]}]
        with pytest.raises(RuntimeError, match="my database is down"):
            getattr(consumer, call)()
        assert len(getattr(consumer, call)()) == 10
        assert len(told) == 2
        consumer.commit()
        assert shop.describe_group("g").committed == {"t": {0: 10, 1: 10}}
