"""Messages of keyed queues that a repair gave up: who reads their queues is told.

Finds: answers without messages that were acknowledged, given as if they had never been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.format.frame import MAGIC
from kmq_storage.keyed.index import QueueIndex
from kmq_storage.keyed.losses import Losses
from tests.damage.disk import opened
from tests.damage.told import tell_losses
from tests.support.damage import flip


def _put(store: kmq.Store, *messages: tuple[str, bytes]) -> None:
    names, values = zip(*messages, strict=True)
    store.keyed_queues("inbox").put_batch(names, values)


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[kmq.KeyedQueues]:
    """Of `a` and `b` the messages in the middle are lost, of `early` none; all others follow."""
    with opened(tmp_path) as store:
        _put(store, ("a", b"a0"), ("early", b"e0"), ("early", b"e1"), ("b", b"b0"))
        store.seal()
        store.checkpoint()
        _put(store, ("a", b"lost"), ("b", b"lost"))
        _put(store, ("a", b"a2"), ("late", b"l0"), ("late", b"l1"))
    (log,) = (tmp_path / "log").glob("0*.log")
    contents = log.read_bytes()
    flip(log, contents.rindex(MAGIC, 0, contents.index(b"lost")) + 20)
    with opened(tmp_path) as store:
        assert store.repair(drop_damaged=True).damage == []
        yield store.keyed_queues("inbox")


@pytest.mark.parametrize("call", ["get", "get_arrow"])
def test_a_get_that_would_pass_over_lost_offsets_says_so_once_and_the_next_one_goes_on(
    queues: kmq.KeyedQueues, call: str
):
    with pytest.raises(kmq.DataLossError, match="messages of queue b'a' in inbox") as lost:
        getattr(queues, call)("a", 0, 9)
    where = lost.value.context
    assert (where["queue"], where["topic"], where["start"], where["end"]) == (b"a", "inbox", 4, 6)
    assert queues.get("a", 0, 9) == [b"a0", b"a2"]


def test_where_a_get_finds_nothing_for_a_loss_it_says_so(queues: kmq.KeyedQueues):
    for name in ("b", "unknown"):
        index = queues.size(name)
        with pytest.raises(kmq.DataLossError):
            queues.get(name, index, 1)
        assert queues.get(name, index, 1) == []


def test_what_stands_before_or_behind_lost_offsets_is_read_as_ever(queues: kmq.KeyedQueues):
    assert queues.get("early", 0, 2) == [b"e0", b"e1"]
    assert queues.get("a", 0, 1) == [b"a0"]
    assert queues.get("early", 0, 0) == []
    tell_losses(queues, "late")  # it may have begun before
    assert queues.get("late", 1, 1) == [b"l1"]


def test_message_by_message_a_reader_is_told_between_those_around_the_loss(
    queues: kmq.KeyedQueues,
):
    assert queues.get("a", 0, 1) == [b"a0"]
    with pytest.raises(kmq.DataLossError):
        queues.get("a", 1, 1)
    assert queues.get("a", 1, 1) == [b"a2"]


def test_a_receiver_is_told_before_it_gets_what_stands_behind_a_loss(queues: kmq.KeyedQueues):
    assert [each.value for each in queues.receive("early", 9)] == [b"e0", b"e1"]
    (first,) = queues.receive("a")
    with pytest.raises(kmq.DataLossError, match="of queue b'a'"):
        queues.receive("a")
    (second,) = queues.receive("a", 9)
    queues.ack([first, second])
    assert [first.value, second.value, queues.lag("a")] == [b"a0", b"a2", 0]


def test_get_many_names_one_queue_and_goes_on_with_all_of_them(queues: kmq.KeyedQueues):
    with pytest.raises(kmq.DataLossError, match="of queue b'early'"):
        queues.get_many(["early", "a", "b"], 0, 9)
    found = queues.get_many(["early", "a", "b"], 0, 9)
    assert found["value"].to_pylist() == [b"e0", b"e1", b"a0", b"a2", b"b0"]


def test_get_many_tells_the_same_losses_as_gets_one_by_one_and_looks_up_no_queue_alone(
    queues: kmq.KeyedQueues, monkeypatch: pytest.MonkeyPatch
):
    names = ["late", "a", "b", "early", "unknown"]
    asked = [(name, first, most) for name in names for first in (0, 1, 2, 9) for most in (1, 2, 9)]
    told = [_tells(queues, partial(queues.get, *each)) for each in asked]
    with monkeypatch.context() as patched:
        patched.delattr(QueueIndex, "span")
        patched.delattr(QueueIndex, "places")
        many = [_tells(queues, partial(queues.get_many, [each[0]], *each[1:])) for each in asked]
    assert many == told
    assert set(told) == {True, False}


def _tells(queues: kmq.KeyedQueues, call: Callable[[], object]) -> bool:
    """Whether a handle that was told nothing yet is told of losses by a call."""
    queues._reader._losses = Losses()
    try:
        call()
    except kmq.DataLossError:
        return True
    return False


@pytest.mark.parametrize("is_last", [True, False])
def test_before_a_repair_a_damaged_commit_is_no_end_of_a_queue(tmp_path: Path, is_last: bool):
    """Behind what can be read nobody knows whether there is more."""
    with opened(tmp_path) as store:
        _put(store, ("a", b"a0"), ("a", b"a1"), ("b", b"b0"), ("b", b"b1"))
        store.seal()
        store.checkpoint()
        _put(store, ("a", b"lost"))
        if not is_last:
            store.create_topic("another")
    (log,) = (tmp_path / "log").glob("0*.log")
    contents = log.read_bytes()
    flip(log, contents.rindex(MAGIC, 0, contents.index(b"lost")) + 20)
    with kmq.open(tmp_path, read_only=True) as store:
        queues = store.keyed_queues("inbox")
        assert queues.get("a", 0, 2) == [b"a0", b"a1"]
        assert queues.get_many(["b", "a"], 0, 2).num_rows == 4
        for name in ("a", "b", "unknown"):
            with pytest.raises(kmq.CorruptionError, match="inbox-0: what follows offset 4 can't"):
                queues.get(name, 0, 9)
        with pytest.raises(kmq.CorruptionError, match="inbox-0: what follows offset 4 can't"):
            queues.get_many(["b", "a"], 0, 9)
        for tell in (queues.size, queues.span, queues.lag, lambda _: queues.names()):
            with pytest.warns(kmq.KmqWarning, match="more may have been stored .* inbox-0") as told:
                tell("a")
            assert told[0].filename == __file__


def test_a_queue_that_reads_on_is_told_at_once_of_all_losses_behind_it(tmp_path: Path):
    with opened(tmp_path) as store:
        for number in range(30):
            _put(store, ("a", b"lost%d" % number if number in (10, 20) else b"whole"))
    (log,) = (tmp_path / "log").glob("0*.log")
    for lost in (b"lost10", b"lost20"):
        contents = log.read_bytes()
        flip(log, contents.rindex(MAGIC, 0, contents.index(lost)) + 20)
    with opened(tmp_path) as store:
        assert store.repair(drop_damaged=True).damage == []
        queues = store.keyed_queues("inbox")
        assert len(queues.get("a", 0, 9)) == 9
        with pytest.raises(kmq.DataLossError, match="offsets 10 to 10, 20 to 20 of the topic"):
            queues.get("a", 9, 9)
        assert [len(queues.get("a", first, 9)) for first in (9, 18, 27)] == [9, 9, 1]
