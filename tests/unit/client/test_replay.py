"""`Store.replay`: what is sent again is what was there, and nothing else.

Finds: lost headers, properties and instants, tombstones that become records, keys out of order,
and a replay that reads what it wrote.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client import finding, replaying
from kmq_storage.groups.administration import committed_offsets

T0 = datetime(2026, 1, 1, tzinfo=UTC)
CONTENTS = ["key", "value", "headers", "properties", "timestamp"]


def _fill(store: kmq.Store, name: str = "t") -> None:
    """Twenty records of three keys, with all that a record may have; half of them sealed."""
    store.create_topic(name, partitions=3)
    with store.producer() as producer:
        for number in range(20):
            producer.send(
                name, b"%d" % number if number % 5 else None, b"%d" % (number % 3),
                timestamp=T0 + timedelta(seconds=number),
                headers=[("h", b"1"), ("h", None)] if number % 2 else None,
                properties={"n": number, "half": number / 2} if number % 3 else None,
            ).result(10)  # fmt: skip
            if number == 9:
                store.seal()


def _by_key(table: pa.Table, key: str = "key") -> dict[bytes, list[object]]:
    rows: dict[bytes, list[object]] = {}
    for row in table.to_pylist():
        contents = {name: row[name] for name in row if name.strip("_") in CONTENTS or name == "n"}
        rows.setdefault(row[key], []).append(contents)
    return rows


def test_a_topic_is_sent_to_another_one_as_it_is(store: kmq.Store):
    _fill(store)
    store.create_topic("u", partitions=2)
    assert store.replay("t", "u") == 20
    found = _by_key(store.read("u").read_all())
    assert found == _by_key(store.read("t").read_all())
    assert sum(map(len, found.values())) == 20


def test_some_records_are_sent_again(store: kmq.Store):
    _fill(store)
    store.create_topic("u")
    assert store.replay("t", "u", key=b"1", start=T0 + timedelta(seconds=5)) == 5
    assert store.replay("t", "u", properties={"n": 4}) == 1
    assert store.replay("t", "u", headers={"h": "2"}) == 0
    values = store.read("u", columns=["value"]).read_all()["value"].to_pylist()
    assert values == [b"7", None, b"13", b"16", b"19", b"4"]


def test_a_topic_can_be_sent_to_itself(store: kmq.Store):
    _fill(store)
    assert store.replay("t", "t") == 20
    assert store.describe_topic("t").rows == 40


def test_typed_records_and_their_tombstones_stay_what_they_are(store: kmq.Store):
    schema = pa.schema([("n", pa.int64())])
    for name in ("t", "u"):
        store.create_topic(name, schema=schema)
    with store.producer() as producer:
        for number, value in enumerate([{"n": 1}, None, {"n": None}, None, None, {"n": 6}]):
            properties = {"p": number}
            producer.send("t", value, b"k", properties=properties, timestamp=T0).result(10)
    assert store.replay("t", "u") == 6
    both = [store.read(name).read_all() for name in ("t", "u")]
    assert _by_key(both[0], "_key") == _by_key(both[1], "_key")
    with store.consumer(topics=["u"]) as consumer:
        values = [record.value for record in consumer.consume(10, timeout=0)]
    assert values == [{"n": 1}, None, {"n": None}, None, None, {"n": 6}]


@pytest.mark.parametrize("group", [None, "g"])
def test_columns_that_are_named_as_a_place_are_sent_again(store: kmq.Store, group: str | None):
    row = {"topic": "news", "partition": 3, "offset": 7}
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    for name in ("t", "u"):
        store.create_topic(name, schema=schema)
    with store.producer() as producer:
        producer.send("t", row, b"k").result(10)
    assert store.replay("t", "u", group=group) == 1
    assert store.read("u", columns=list(row)).read_all().to_pylist() == [row]


class _At:
    """Does something before a batch is sent for the n-th time."""

    def __init__(self, patch: pytest.MonkeyPatch, nth: int, act: Callable[[], object]) -> None:
        self._left, self._act, self._sends = nth, act, replaying._sends
        patch.setattr(replaying, "_sends", self)

    def __call__(self, *arguments: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            self._act()
        return self._sends(*arguments)


def _disk_full() -> None:
    raise kmq.UnavailableError("the disk is full")


@pytest.mark.parametrize("wanted", [{}, {"headers": {"h": b"1"}}])
def test_with_a_group_a_replay_that_failed_goes_on_and_sends_each_record_once(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
):
    _fill(store)
    store.create_topic("u", partitions=2)
    failures = 0
    while failures < 99:
        with monkeypatch.context() as patch, suppress(kmq.UnavailableError):
            _At(patch, 2, _disk_full)
            store.replay("t", "u", group="again", **wanted)
            break
        failures += 1
    assert 0 < failures < 99
    assert store.replay("t", "u", group="again", **wanted) == 0
    expected = store.find("t", **wanted)
    assert _by_key(store.read("u").read_all()) == _by_key(expected)
    with store.producer() as producer:
        producer.send("t", b"new", headers={"h": b"1"}).result(10)
    assert store.replay("t", "u", group="again", **wanted) == 1
    assert store.replay("t", "u", group="other", **wanted) == expected.num_rows + 1


def test_of_two_replays_with_a_group_the_later_one_sends_what_is_left(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """The earlier one goes on when the later one knows where it begins."""
    _fill(store)
    store.create_topic("u")
    stands, goes_on, told = threading.Event(), threading.Event(), SimpleQueue[BaseException]()

    def replay() -> None:
        try:
            store.replay("t", "u", group="again")
        except BaseException as error:
            told.put(error)

    def stand() -> None:
        stands.set()
        assert goes_on.wait(30)

    def read_and_let_go(*arguments: Any) -> Any:
        found = committed_offsets(*arguments)
        goes_on.set()
        earlier.join(30)
        return found

    _At(monkeypatch, 2, stand)
    earlier = threading.Thread(target=replay)
    earlier.start()
    assert stands.wait(30)
    monkeypatch.setattr(finding, "committed_offsets", read_and_let_go)
    assert 0 < store.replay("t", "u", group="again") < 20
    assert isinstance(told.get(timeout=30), kmq.FencedError)
    assert _by_key(store.read("u").read_all()) == _by_key(store.read("t").read_all())
    assert store.describe_topic("u").rows == 20


def test_a_group_that_others_read_by_is_not_moved(store: kmq.Store):
    _fill(store)
    store.create_topic("u")
    with store.consumer("g", topics=["t"]), pytest.raises(kmq.IllegalStateError, match="live"):
        store.replay("t", "u", group="g")
    with pytest.raises(kmq.InvalidRequestError, match="group"):
        store.replay("t", "u", group="a b")
    assert store.describe_topic("u").rows == 0


def test_a_topic_is_sent_to_a_queue_as_it_is(store: kmq.Store):
    _fill(store)
    store.create_queue("q")
    wanted: dict[str, Any] = {"properties": {"half": 4.0}}  # the eighth: no tombstone
    assert [store.replay("t", queue="q", group="g", **wanted) for _ in range(2)] == [1, 0]
    found = store.queue("q").receive_arrow()
    assert found is not None
    assert _by_key(found) == _by_key(store.find("t", **wanted))


def test_a_target_that_does_not_fit_is_named(store: kmq.Store):
    _fill(store)
    store.create_topic("typed", schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(kmq.NotFoundError, match=r"Topic\[u\]"):
        store.replay("t", "u")
    with pytest.raises(kmq.InvalidRequestError, match="typed"):
        store.replay("t", "typed")
    with pytest.raises(kmq.NotFoundError, match=r"Queue\[u\]"):
        store.replay("t", queue="u")
    store.create_queue("q")
    with pytest.raises(kmq.InvalidRequestError, match="takes no tombstones"):
        store.replay("t", queue="q")
    for both in ((), ("typed",)):
        with pytest.raises(kmq.InvalidRequestError, match="either a topic or a queue"):
            store.replay("t", *both, queue="q" if both else None)
    assert store.queue("q").stats().ready == 0
    assert store.describe_topic("typed").rows == 0


def test_a_refused_batch_is_an_error_and_leaves_what_came_before(store: kmq.Store):
    _fill(store)
    store.create_topic("u", capacity=10)
    with pytest.raises(kmq.QueueFullError):
        store.replay("t", "u")
    assert store.describe_topic("u").rows <= 10
