"""Deleted topics that are remembered."""

from __future__ import annotations

import pytest

from kmq_storage import limits
from kmq_storage.log.state.gone_topics import GoneTopic, GoneTopics


def _topic(number: int, *groups: str) -> GoneTopic:
    read = {group: {0: 1} for group in groups}
    return GoneTopic(number.to_bytes(16), f"t{number}", (1,), read)


def _ids(gone: GoneTopics) -> list[int]:
    return [int.from_bytes(topic.id) for topic in gone]


def test_a_deletion_costs_the_same_however_many_topics_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "GONE_OFFSETS_REMEMBERED", 1_000)
    gone = GoneTopics(tuple(map(_topic, range(1_000))))
    looked: list[GoneTopic] = []

    def numbers(topic: GoneTopic) -> int:
        looked.append(topic)
        return 1

    monkeypatch.setattr(GoneTopic, "numbers", property(numbers))
    for number in range(1_000, 1_010):
        gone.add(_topic(number))
    assert _ids(gone) == list(range(10, 1_010))
    assert len(looked) < 50


def test_a_deleted_group_and_a_topic_that_was_put_back_leave_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "GONE_OFFSETS_REMEMBERED", 4)
    gone = GoneTopics()
    gone.add(_topic(1, "a", "b"))
    gone.forget_group("a")
    gone.add(_topic(2))
    gone.add(_topic(2))
    gone.add(_topic(3))
    assert _ids(gone) == [1, 2, 3]
    gone.add(_topic(4))
    assert _ids(gone) == [2, 3, 4]


def test_the_newest_topic_is_remembered_however_large_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "GONE_OFFSETS_REMEMBERED", 2)
    gone = GoneTopics((_topic(1),))
    gone.add(_topic(2, "a", "b", "c"))
    assert _ids(gone) == [2]
