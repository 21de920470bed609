"""Finds tasks that are not balanced by the bytes of the record batches in sealed segments."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kmq_spark as kmq
from kmq_spark.datasource.options.task_limits import TaskLimits
from kmq_spark.datasource.planning import ranges, stored_batches
from kmq_spark.datasource.planning.ranges import OffsetRange
from kmq_spark.datasource.planning.tasks import plan_tasks
from kmq_spark.datasource.planning.topic_ranges import TopicRanges
from kmq_storage import limits
from kmq_storage.format.segment import SegmentFooter
from kmq_storage.log.reading import scan
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.model import Place, Segment

#: The records of a batch, and the bytes of each.
Size = tuple[int, int]
Span = tuple[int, int]
LIGHT, HEAVY = (200, 10), (20, 10_000)

sealed_sizes = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 1_500)), max_size=5)


@contextmanager
def _store(segments: list[list[Size]], cores: int = 2) -> Iterator[kmq.Store]:
    """A partition of sealed segments, whose batches end at 4 kB, for a plan of small tasks."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(limits, "STAGED_BATCH_BYTES", 4_000)
        patch.setattr(scan, "_JOINED_BYTES", 4_000)
        patch.setattr(ranges, "TASK_BYTES_MIN", 4_000)
        patch.setattr(os, "cpu_count", lambda: cores)
        with kmq.open(Path(folder), durability="os", maintenance=False) as store:
            store.create_topic("t")
            for sizes in segments:
                with store.producer(linger=0) as producer:
                    for records, size in sizes:
                        values = [os.urandom(size) for _ in range(records)]
                        producer.send_batch("t", values, partition=0).result(60)
                store.seal()
            yield store


def _places(store: kmq.Store, topic: str = "t", partition: int = 0) -> list[Place]:
    known = store.log.refresh().topic(topic)
    return known.places(partition, 0, known.parts[partition].end)


def _batches(
    store: kmq.Store, topic: str = "t", partition: int = 0
) -> list[tuple[int, int, float]]:
    """The offsets of each batch, and its share of its segment's bytes."""
    reader, found = ChunkReader(store.log.files), []
    for place in _places(store, topic, partition):
        assert isinstance(place, Segment)
        chunks = reader.chunks(place, topic, partition)
        whole = place.length / sum(each.location.length for each in chunks)
        found += [(c.base_offset, c.end_offset, c.location.length * whole) for c in chunks]
    return found


def _tasks(store: kmq.Store, span: Span | None = None, **given: int) -> list[Span]:
    topic = store.log.refresh().topic("t")
    wanted = OffsetRange("t", 0, *(span or (0, topic.parts[0].end)))
    tasks = plan_tasks([TopicRanges.of(topic, [wanted])], TaskLimits(**given), store.log.files)
    return [(part.start, part.end) for task in tasks for run in task.runs for part in run]


def _bytes_of(span: Span, batches: list[tuple[int, int, float]]) -> float:
    return sum(
        size * max(min(end, span[1]) - max(start, span[0]), 0) / (end - start)
        for start, end, size in batches
    )


def _opened(patch: pytest.MonkeyPatch) -> list[str]:
    files: list[str] = []
    footer = ChunkReader.footer

    def opened(self: ChunkReader, place: Place) -> SegmentFooter:
        files.append(place.location.file)
        return footer(self, place)

    patch.setattr(ChunkReader, "footer", opened)
    return files


@settings(max_examples=30)
@given(st.lists(sealed_sizes, min_size=1, max_size=3), st.integers(1, 6), st.data())
def test_tasks_cover_a_range_once_whatever_the_sizes_and_exceed_their_share_by_a_batch_at_most(
    segments: list[list[Size]], cores: int, data: st.DataObject
) -> None:
    with _store([[(1, 1)], *segments], cores) as store:
        batches = _batches(store)
        end = batches[-1][1]
        tasks, sizes = _tasks(store), [size for *_, size in batches]
        assert _is_whole(tasks, (0, end))
        share, borders = sum(sizes) / len(tasks), {start for start, *_ in batches}
        for span in tasks:
            assert _bytes_of(span, batches) <= share + max(*sizes, share / 8) + len(sizes)
            assert span[0] in borders or max(sizes) > share
        low, high = sorted(data.draw(st.tuples(st.integers(0, end), st.integers(0, end))))
        most = data.draw(st.integers(16_000, 60_000))
        record = max(size / (end - start) for start, end, size in batches)
        assert _is_whole(_tasks(store, (low, high)), (low, high))
        for limited in ({}, {"max_records": 50}, {"min_partitions": 3}):
            spans = _tasks(store, (low, high), max_bytes=most, **limited)
            assert _is_whole(spans, (low, high))
            assert all(_bytes_of(span, batches) <= most + record + len(sizes) for span in spans)


def _is_whole(tasks: list[Span], span: Span) -> bool:
    assert all(before[1] == after[0] for before, after in pairwise(tasks))
    return (tasks[0][0], tasks[-1][1]) == span if tasks else span[0] == span[1]


def test_heavy_records_behind_light_ones_of_a_sealed_segment_are_shared() -> None:
    with _store([[LIGHT] * 5 + [HEAVY] * 5]) as store:
        (place,) = _places(store)
        batches = _batches(store)
        sizes = [_bytes_of(span, batches) for span in _tasks(store)]
        assert len(sizes) == 2
        assert max(sizes) <= 0.7 * sum(sizes)
        limited = _tasks(store, max_bytes=300_000)
        assert max(_bytes_of(span, batches) for span in limited) <= 300_000
        late = _tasks(store, (900, place.end_offset))
        assert max(_bytes_of(span, batches) for span in late) <= 0.7 * sum(sizes)


@pytest.mark.parametrize("most", [None, 100_000])
def test_partitions_of_several_topics_are_each_divided_by_their_own_batches(
    most: int | None,
) -> None:
    with _store([]) as store:
        places = [(name, number) for name in ("a", "b") for number in range(2)]
        for name in ("a", "b"):
            store.create_topic(name, partitions=2)
        with store.producer(linger=0) as producer:
            for turn, (name, number) in enumerate(places):
                for records, size in ([LIGHT] * 3 + [HEAVY] * 3)[:: 1 - 2 * (turn % 2)]:
                    values = [os.urandom(size) for _ in range(records)]
                    producer.send_batch(name, values, partition=number).result(60)
        store.seal()
        state = store.log.refresh()
        batches = {place: _batches(store, *place) for place in places}
        wanted = [
            TopicRanges.of(state.topic(name), [OffsetRange(name, n, 0, 660) for n in range(2)])
            for name in ("a", "b")
        ]
        tasks = plan_tasks(wanted, TaskLimits(max_bytes=most), store.log.files)
        parts = [part for task in tasks for run in task.runs for part in run]
        for place in places:
            spans = [(p.start, p.end) for p in parts if (p.topic, p.partition) == place]
            assert _is_whole(spans, (0, 660))
        sizes = [
            sum(
                _bytes_of((p.start, p.end), batches[p.topic, p.partition])
                for run in task.runs
                for p in run
            )
            for task in tasks
        ]
        assert max(sizes) <= (most or sum(sizes) / len(tasks) + 20_000)


def test_a_plan_in_a_bucket_opens_no_more_footers_than_it_has_borders(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "TASK_BYTES_MIN", 4_000)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    with kmq.open(s3_url, maintenance=False) as store:
        store.create_topic("t")
        for _ in range(6):
            with store.producer(linger=0) as producer:
                producer.send_batch("t", [os.urandom(1_000) for _ in range(200)]).result(60)
            monkeypatch.setattr(limits, "SEGMENT_BYTES", 100_000)
            store.seal()
        store.checkpoint()
        with kmq.open(s3_url, maintenance=False, read_only=True) as fresh:
            fresh.log.refresh()
            opened = _opened(monkeypatch)
            tasks = _tasks(fresh)
            assert len(tasks) == 4
            assert _is_whole(tasks, (0, 1_200))
            assert 1 <= len(opened) <= 3


def test_segments_into_which_no_border_falls_are_not_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SEGMENT_BYTES", 100_000)
    with _store([[(20, 1_000)] * 4] * 9, cores=2) as store:
        places, opened = _places(store), _opened(monkeypatch)
        assert len(places) > 5
        tasks = _tasks(store)
        crossed = [p for p in places if p.base_offset < tasks[1][0] < p.end_offset]
        assert len(tasks) == 2
        assert len(opened) <= 1
        assert {place.location.file for place in crossed} <= set(opened)
        opened.clear()
        assert _tasks(store, min_partitions=3)
        assert not opened


def test_a_plan_opens_so_many_footers_at_most_and_divides_the_other_segments_in_proportion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_batches, "_FOOTERS_MAX", 1)
    monkeypatch.setattr(limits, "SEGMENT_BYTES", 100_000)
    with _store([[(20, 1_000)] * 4] * 9, cores=8) as store:
        end, opened = _places(store)[-1].end_offset, _opened(monkeypatch)
        tasks = _tasks(store)
        assert len(set(opened)) == 1
        assert len(tasks) == 8
        assert _is_whole(tasks, (0, end))


def test_a_segment_that_is_gone_or_damaged_is_left_to_the_task_that_reads_it() -> None:
    with _store([[LIGHT] * 5 + [HEAVY] * 5]) as store:
        (place,) = _places(store)
        (Path(store.url.removeprefix("file://")) / place.location.file).unlink()
        assert _is_whole(_tasks(store), (0, place.end_offset))
