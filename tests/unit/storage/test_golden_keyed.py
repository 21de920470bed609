"""The golden stores of keyed queues have the same messages at the same indexes for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.data import (
    make_golden_ended,
    make_golden_inboxes,
    make_golden_keyed,
    make_golden_runs,
    make_golden_trimmed,
)
from tests.support.golden import DATA, KINDS, placed


@pytest.mark.parametrize("kind", KINDS)
def test_the_golden_queues_have_their_messages(kind: str, tmp_path: Path) -> None:
    golden = DATA / "format-1-keyed"
    with kmq.open(placed(kind, golden, make_golden_keyed.make, tmp_path / "store")) as store:
        queues = store.keyed_queues("inbox")
        numbers = _numbers()
        assert queues.names() == sorted(f"key {n}" for n in numbers)
        for n in numbers:
            assert queues.get(f"key {n}", 0, 9) == _messages(n)
        assert queues.put("key 1", b"more").result() == 2
        assert store.verify(deep=True).ok


@pytest.mark.parametrize("kind", KINDS[:2])
def test_the_golden_runs_have_their_messages(kind: str, tmp_path: Path) -> None:
    golden = DATA / "format-1-runs"
    with kmq.open(placed(kind, golden, make_golden_runs.make, tmp_path / "store")) as store:
        topic = store.log.refresh().topic("inbox")
        assert [row.in_run for row in topic.index(0).rows(0, topic.partition(0).end)] == [True] * 2
        queues = store.keyed_queues("inbox")
        assert queues.names() == sorted(["key 21", *(f"key {n}" for n in _numbers())])
        for n in _numbers():
            assert queues.get(f"key {n}", 0, 9) == _messages(n) + [b"value 1"] * 2 * (n == 1)
        offsets = store.read("inbox").read_all()["offset"].to_pylist()
        superseded = {5} if kind == "made now" else set()  # the end of a queue that ends again
        assert offsets == sorted({*range(33)} - superseded)
        assert store.verify(deep=True).ok


@pytest.mark.parametrize("kind", KINDS[:2])
def test_the_golden_queues_that_ended_stay_ended(kind: str, tmp_path: Path) -> None:
    golden = DATA / "format-1-ended"
    with kmq.open(placed(kind, golden, make_golden_ended.make, tmp_path / "store")) as store:
        topic = store.log.refresh().topic("inbox")
        rows = topic.index(0).rows(0, topic.partition(0).end)
        assert [row.in_run for row in rows] == [True, True, False, False]
        queues = store.keyed_queues("inbox")
        assert queues.names() == ["a", "b", "d"]
        assert queues.get("a", 0, 9) == [b"4"]
        assert queues.get("b", 0, 9) == [b"2", b"5"]
        assert queues.get("d", 0, 9) == [b"8"]
        assert queues.put_batch(["c", "a"], [b"9", b"10"]) == [0, 1]
        store.seal()
        store.compact("inbox")
        assert queues.get("a", 0, 9) == [b"4", b"10"]
        assert store.verify(deep=True).ok


@pytest.mark.parametrize("kind", KINDS[:2])
def test_the_golden_queues_that_were_trimmed_keep_their_indexes(kind: str, tmp_path: Path) -> None:
    golden = DATA / "format-1-trimmed"
    with kmq.open(placed(kind, golden, make_golden_trimmed.make, tmp_path / "store")) as store:
        for name, of_c in {"merged": [b"7"], "alone": []}.items():
            queues = store.keyed_queues(name)
            spans = {queue: queues.span(queue) for queue in "abcd"}
            assert spans == {"a": (3, 4), "b": (2, 2), "c": (1 - len(of_c), 1), "d": (0, 1)}
            values = queues.get_many(["a", "b", "c", "d"], None, 9)["value"].to_pylist()
            assert values == [b"8", *of_c, b"9"]
            assert queues.put_batch(["a", "c"], [b"x", b"y"]) == [4, 1]
            store.trim(name, {0: 11})
            assert queues.put_batch(["d", "b", "a"], [b"x", b"y", b"z"]) == [1, 2, 5]
        assert store.verify(deep=True).ok


@pytest.mark.parametrize("kind", KINDS)
def test_the_golden_inboxes_know_what_is_done_and_held(kind: str, tmp_path: Path) -> None:
    golden = DATA / "format-1-inboxes"
    with kmq.open(placed(kind, golden, make_golden_inboxes.make, tmp_path / "store")) as store:
        queues = store.keyed_queues("inbox")
        assert (queues.lag("a"), queues.lag("b")) == (2, 1)
        found = queues.receive("a", 9)
        assert [(each.value, each.delivery_count) for each in found] == [(b"3", 2), (b"4", 1)]
        assert queues.receive("b") == []
        queues.ack(found)
        assert queues.lag("a") == 0


def _numbers() -> list[int]:
    """Every fifth record of the golden stores has no value, and every second one no key."""
    return [n for n in range(20) if n % 2 and n % 5]


def _messages(number: int) -> list[bytes]:
    return [b"value %d" % number] * (2 if number < 10 else 1)
