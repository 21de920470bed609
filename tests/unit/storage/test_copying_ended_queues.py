"""Finds a copy in which keyed queues live on that ended in its source, or have other indexes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.copying.topics import copy_topics


@pytest.fixture
def source(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(tmp_path / "source", maintenance=False) as store:
        yield store


def _a_day_later(store: kmq.Store, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old ends are forgotten."""
    monkeypatch.setattr(limits, "TOMBSTONE_DELAY", 0.0)
    assert store.compact(topic).dropped


@pytest.mark.parametrize("anew", [[], ["new"], ["new", "newer", "newest", "more"]])
@pytest.mark.parametrize("upkeep", [False, True])
def test_a_queue_that_ended_and_was_forgotten_before_a_copy_went_on_does_not_live_on_in_it(
    source: kmq.Store,
    target: kmq.Store,
    monkeypatch: pytest.MonkeyPatch,
    anew: list[str],
    upkeep: bool,
):
    inboxes, copied = source.keyed_queues("inbox"), target.keyed_queues
    inboxes.put_batch(["a", "a", "a", "b", "c"], ["0", "1", "2", "x", "y"])
    source.seal()
    copy_topics(source.log, target.log)
    inboxes.delete("a", "c")
    inboxes.put_batch(["a"] * len(anew) + ["b"], [*anew, "z"])
    _a_day_later(source, "inbox", monkeypatch)
    if upkeep:
        target.compact("inbox")
    for _ in range(2):
        copy_topics(source.log, target.log)
        for name in "abc":
            assert copied("inbox").span(name) == inboxes.span(name)
            assert copied("inbox").get(name, 0, 9) == inboxes.get(name, 0, 9)
        assert copied("inbox").names() == inboxes.names()
        inboxes.put_batch(["a", "c"], ["then", "then"])
    assert target.verify(deep=True).ok


def test_what_a_group_acknowledged_days_before_a_copy_went_on_is_done_in_it(
    source: kmq.Store, target: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    inboxes = source.keyed_queues("inbox")
    inboxes.put_batch(["a"] * 3, ["0", "1", "2"])
    held = inboxes.receive("a", 2)
    source.seal()
    copy_topics(source.log, target.log)
    inboxes.ack(held)
    _a_day_later(source, "inbox%default", monkeypatch)
    copy_topics(source.log, target.log)
    copied = target.keyed_queues("inbox")
    assert copied.lag("a") == inboxes.lag("a") == 1
    assert [each.value for each in copied.receive("a", 9)] == [b"2"]
