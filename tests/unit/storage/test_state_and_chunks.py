"""What commits add up to, and how the places of a range are found."""

from __future__ import annotations

import random

import pytest

from kmq_storage import limits, paths
from kmq_storage.errors import FormatVersionError, NotFoundError, OffsetOutOfRangeError
from kmq_storage.format.entries import Entry, ProducerEntry, RecordsEntry, TopicEntry
from kmq_storage.log.checkpoints.snapshot import snapshot
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.index.offset_index import OffsetIndex
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.memory import memory_disk

TOPIC = b"t" * 16


def _records(base: int, rows: int, *, low: int = 0, high: int = 0, size: int = 0) -> RecordsEntry:
    return RecordsEntry(TOPIC, 0, rows, base, 64, 10, 0, 0, low, high, size)


def _no_pages() -> Manifest:
    return Manifest(memory_disk("pages", read_only=False), ())


def _index(*entries: RecordsEntry) -> OffsetIndex:
    return _state(*entries).topic("t").index(0)


def _state(*commits: Entry) -> StoreState:
    state = StoreState(_no_pages())
    for lsn, entry in enumerate([TopicEntry(TOPIC, "t", 2, {}), *commits], 1):
        state.apply(lsn, lsn, [entry], file=7, position=100)
    return state


def test_the_chunks_of_a_range_are_those_that_overlap_it():
    entries, rng, base, spans = [], random.Random(3), 0, []
    for _ in range(200):
        rows = rng.randrange(1, 9)
        entries.append(_records(base, rows))
        spans.append((base, base + rows))
        base += rows
    index = _index(*entries)
    for _ in range(300):
        start, end = sorted(rng.choices(range(base + 5), k=2))
        expected = [low for low, high in spans if low < end and start < high and start < end]
        assert [chunk.base_offset for chunk in index.between(start, end)] == expected
        assert [chunk.base_offset for chunk in index.between(start, end, 3)] == expected[:3]


def test_a_chunk_says_where_it_stands_in_its_file():
    chunk = _state(_records(0, 5, low=3, high=9)).topic("t").places(0, 2, 4)[0]
    assert (chunk.location.file, chunk.location.position, chunk.location.length) == (
        paths.log_file(7),
        164,
        10,
    )
    assert (chunk.base_offset, chunk.end_offset) == (0, 5)
    assert (chunk.min_timestamp, chunk.max_timestamp) == (3, 9)


def test_the_first_chunk_since_an_instant_need_not_be_in_order():
    index = _index(*[_records(base, 1, high=high) for base, high in enumerate([5, 9, 7, 12])])
    found = {at: index.first_since(at, 0, 4) for at in (0, 6, 10, 13)}
    assert {at: chunk and chunk.base_offset for at, chunk in found.items()} == {
        0: 0,
        6: 1,
        10: 3,
        13: None,
    }


def test_the_size_of_what_is_left_counts_a_cut_chunk_in_proportion():
    index = _index(_records(0, 10, size=1_000), _records(10, 10, size=500))
    sizes = [index.size_from(offset, 20) for offset in (0, 5, 10, 15, 20)]
    assert sizes == [1500, 1000, 500, 250, 0]


def test_a_range_outside_the_log_names_the_range_inside():
    topic = _state(_records(0, 5)).topic("t")
    with pytest.raises(OffsetOutOfRangeError) as caught:
        topic.places(0, 6, 9)
    assert (caught.value.context["start"], caught.value.context["end"]) == (0, 5)
    with pytest.raises(NotFoundError, match=r"Partition\[t-2\]"):
        topic.partition(2)
    assert topic.places(1, 0, 0) == []


def test_only_so_many_producers_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "PRODUCERS_REMEMBERED", 3)
    state = _state(*[ProducerEntry(name, 1, 0) for name in "abcad"])
    assert sorted(state.producers) == ["a", "c", "d"]


def test_a_checkpoint_has_the_producer_that_wrote_last_at_the_end_whoever_it_is():
    made_up = "0" * 32
    state = _state(*[ProducerEntry(name, 0, 0) for name in ("a", made_up, "b")])
    assert [name for name, *_ in snapshot(state)["producers"]] == ["a", made_up, "b"]


def test_settings_of_a_newer_version_are_refused():
    with pytest.raises(FormatVersionError, match="newer kmq"):
        _state(TopicEntry(b"n" * 16, "n", 1, {"from_the_future": 1}))
