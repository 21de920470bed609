"""Finds a copy that takes records of who writes to its target, or that upkeep there stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.copying import partition, topics
from kmq_storage.copying.topics import copy_topics


@pytest.fixture
def source(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(tmp_path / "source", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t")
        for value in (b"a", b"b", b"c"):
            producer.send_batch("t", [value] * 3).result()
            store.seal()
        yield store


def _before_the_second_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Something happens in the target when the second segment is written, but not committed."""
    original, written = partition.write_segment, []

    def slow(*arguments: Any) -> Any:
        entry = original(*arguments)
        written.append(entry)
        if len(written) == 2:
            act()
        return entry

    monkeypatch.setattr(partition, "write_segment", slow)


def _values(store: kmq.Store) -> list[bytes]:
    values: list[bytes] = store.read("t").read_all()["value"].to_pylist()
    return values


def test_a_group_that_is_moved_while_a_copy_looks_is_not_put_back(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    source.set_group_offsets("readers", {"t": {0: 5}})
    look = topics.has_live_member

    def slow(*arguments: Any) -> bool:
        monkeypatch.setattr(topics, "has_live_member", look)
        target.set_group_offsets("readers", {"t": {0: 7}})
        return look(*arguments)

    monkeypatch.setattr(topics, "has_live_member", slow)
    copy_topics(source.log, target.log)
    assert target.describe_group("readers").committed == {"t": {0: 7}}


@pytest.mark.parametrize("count", [1, 3, 4, 6])
def test_a_copy_takes_no_records_from_who_writes_to_its_target_meanwhile(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch, count: int
):
    with target.producer() as producer:
        _before_the_second_commit(
            monkeypatch, lambda: producer.send_batch("t", [b"mine"] * count).result()
        )
        with pytest.raises(kmq.InvalidRequestError, match="t-0 in the target was written to"):
            copy_topics(source.log, target.log)
    assert _values(target) == [b"a"] * 3 + [b"mine"] * count


def test_no_gap_of_a_copy_takes_records_from_who_writes_to_its_target_meanwhile(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    copy_topics(source.log, target.log)
    with source.producer() as producer:
        producer.send_batch("t", [b"d"] * 3).result()
        source.trim("t", {0: 11})
    with target.producer() as producer:
        original = partition.Gap.entry

        def late(gap: Any, key: Any, planned: int) -> Any:
            entry = original(gap, key, planned)
            producer.send_batch("t", [b"mine"] * 3).result()
            return entry

        monkeypatch.setattr(partition.Gap, "entry", late)
        with pytest.raises(kmq.InvalidRequestError, match="t-0 in the target was written to"):
            copy_topics(source.log, target.log)
    assert _values(target)[9:] == [b"mine"] * 3


def test_maintenance_of_the_target_does_not_stop_a_copy(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    _before_the_second_commit(monkeypatch, lambda: target.trim("t", {0: 2}))
    assert copy_topics(source.log, target.log).rows == 9
    assert target.offsets("t") == {0: (2, 9)}
    assert _values(target) == _values(source)[2:]
    assert target.verify(deep=True).ok


def test_maintenance_of_the_target_does_not_stop_a_copy_of_queues_that_were_trimmed(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    inboxes = source.keyed_queues("inboxes")
    inboxes.put_batch([b"q"] * 6, [b"%d" % n for n in range(6)])
    copy_topics(source.log, target.log)
    inboxes.put_batch([b"q"] * 6, [b"%d" % n for n in range(6, 12)])
    source.seal()
    source.trim("inboxes", {0: 9})
    original, trims = partition.Gap.entry, [3, 4]

    def late(gap: Any, key: Any, planned: int) -> Any:
        if trims:
            target.trim("inboxes", {0: trims.pop(0)})
        return original(gap, key, planned)

    monkeypatch.setattr(partition.Gap, "entry", late)
    copy_topics(source.log, target.log)
    assert not trims
    assert target.offsets("inboxes") == source.offsets("inboxes")
    copied = target.keyed_queues("inboxes")
    assert copied.get(b"q", 9, 9) == inboxes.get(b"q", 9, 9) == [b"9", b"10", b"11"]
    assert target.describe_topic("inboxes").rows == source.describe_topic("inboxes").rows
