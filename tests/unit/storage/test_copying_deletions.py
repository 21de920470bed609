"""Finds a copy of the newest of each key that keeps what its source deleted long ago."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.copying import deletions
from kmq_storage.copying.topics import copy_topics
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.log.binding.binding import Unit


@pytest.fixture
def source(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(tmp_path / "source", maintenance=False) as store:
        store.create_topic("newest", cleanup="compact")
        yield store


def _send(store: kmq.Store, keys: str, value: bytes | None) -> None:
    with store.producer() as producer:
        for key in keys:
            producer.send("newest", value, key=None if key == "-" else key.encode())
    store.seal()


def _a_day_later(store: kmq.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old tombstones are dropped."""
    with monkeypatch.context() as patch:
        patch.setattr(limits, "TOMBSTONE_DELAY", 0.0)
        assert store.compact("newest").dropped


def _newest(store: kmq.Store) -> dict[bytes | None, bytes | None]:
    found = store.read("newest").read_all()
    return dict(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("upkeep", [False, True])
def test_what_was_deleted_and_forgotten_before_a_copy_went_on_is_deleted_in_it(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch, upkeep: bool
):
    for value in (b"0", b"1"):
        _send(source, "abcd-", value)
    copy_topics(source.log, target.log)
    if upkeep:
        target.compact("newest")
    _send(source, "ab", None)
    _send(source, "bce", b"2")
    _a_day_later(source, monkeypatch)
    for _ in range(2):
        copy_topics(source.log, target.log)
        assert _newest(target) == _newest(source)
        assert set(_newest(target)) == {b"b", b"c", b"d", b"e", None}
        assert target.offsets("newest") == source.offsets("newest")
    target.compact("newest")
    assert target.read("newest").read_all() == source.read("newest").read_all()
    assert target.verify(deep=True).ok


def test_a_copy_is_empty_when_everything_was_deleted(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    _send(source, "ab", b"0")
    copy_topics(source.log, target.log)
    _send(source, "ab", None)
    _a_day_later(source, monkeypatch)
    assert _newest(source) == {}
    copy_topics(source.log, target.log)
    assert _newest(target) == {}
    assert target.offsets("newest") == source.offsets("newest") == {0: (0, 4)}


def test_a_copy_keeps_what_its_source_lost_or_trimmed_and_did_not_delete(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    for keys in ("abcd", "efgh", "ijkl"):
        _send(source, keys, b"0")
    copy_topics(source.log, target.log)
    source.trim("newest", {0: 2})
    _cut_out(source, 5, 7)
    _send(source, "eik", None)
    _send(source, "m", b"1")
    _a_day_later(source, monkeypatch)
    copy_topics(source.log, target.log)
    assert b"".join(filter(None, _newest(target))) == b"abcdefghjlm"


def test_who_dies_while_deleted_keys_are_dropped_leaves_the_rest_to_the_next_copy(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    for value in (b"0", b"1", b"2"):
        _send(source, "abc", value)
        copy_topics(source.log, target.log)
    _send(source, "ab", None)
    _a_day_later(source, monkeypatch)
    commit, left = target.log.commit, [1]

    def dies(units: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return commit(units, **options)

    with monkeypatch.context() as patch:
        patch.setattr(target.log, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            copy_topics(source.log, target.log)
    assert _newest(target) == dict.fromkeys([b"a", b"b", b"c"], b"2")
    copy_topics(source.log, target.log)
    assert _newest(target) == _newest(source) == {b"c": b"2"}


def test_maintenance_of_the_target_that_is_faster_stops_no_deletion(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    for value in (b"0", b"1"):
        _send(source, "abc", value)
        copy_topics(source.log, target.log)
    _send(source, "a", None)
    _a_day_later(source, monkeypatch)
    look, compacts = deletions.newest_of_each_key, [target.compact]

    def looked_slowly(*arguments: Any, **options: Any) -> Any:
        survivors = look(*arguments, **options)
        while compacts:
            assert compacts.pop()("newest").dropped
        return survivors

    monkeypatch.setattr(deletions, "newest_of_each_key", looked_slowly)
    copy_topics(source.log, target.log)
    assert _newest(target) == _newest(source) == dict.fromkeys([b"b", b"c"], b"1")


def _cut_out(store: kmq.Store, start: int, end: int) -> None:
    topic_id = store.log.state.topic("newest").id
    entry = GapEntry(topic_id, 0, start, end, 0, 0, store.log.refresh().lsn, "a test")
    store.log.commit([Unit((entry,))])
