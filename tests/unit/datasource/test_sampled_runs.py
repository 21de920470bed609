"""Finds tasks over keyed topics that are not balanced by the bytes of their messages."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
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
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.model import Segment

#: How many messages, of how many bytes.
Size = tuple[int, int]
Span = tuple[int, int]
LIGHT, HEAVY = (1_000, 10), (200, 10_000)


@contextmanager
def _store(sizes: list[Size], compression: str | None = None) -> Iterator[kmq.Store]:
    """A keyed topic in one run of many small batches, for a plan of small tasks."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(limits, "RUN_BATCH_BYTES", 20_000)
        patch.setattr(ranges, "TASK_BYTES_MIN", 50_000)
        patch.setattr(os, "cpu_count", lambda: 2)
        with kmq.open(Path(folder), durability="os", maintenance=False) as store:
            queues = store.keyed_queues("k")
            if compression:
                store.alter_topic("k", compression=compression)
            for count, size in sizes:
                names = [f"queue {n % 23}" for n in range(count)]
                queues.put_batch(names, [os.urandom(size) for _ in range(count)])
            store.seal()
            yield store


def _tasks(store: kmq.Store, start: int = 0, **given: int) -> list[Span]:
    topic = store.log.refresh().topic("k")
    wanted = OffsetRange("k", 0, start, topic.parts[0].end)
    tasks = plan_tasks([TopicRanges.of(topic, [wanted])], TaskLimits(**given), store.log.files)
    return [(part.start, part.end) for task in tasks for run in task.runs for part in run]


def _bytes_of(tasks: list[Span], sizes: list[Size]) -> list[int]:
    each = np.repeat([size for _, size in sizes], [count for count, _ in sizes])
    return [int(each[start:end].sum()) for start, end in tasks]


def _run(store: kmq.Store) -> Segment:
    topic = store.log.refresh().topic("k")
    (place,) = topic.places(0, 0, topic.parts[0].end)
    assert isinstance(place, Segment)
    return place


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_heavy_messages_behind_light_ones_of_a_run_are_shared(compression: str | None) -> None:
    sizes = [LIGHT, HEAVY]
    with _store(sizes, compression) as store:
        whole = _bytes_of(_tasks(store), sizes)
        assert len(whole) == 2
        assert max(whole) <= 0.6 * sum(whole)
        limited = _tasks(store, max_bytes=400_000)
        assert len(limited) >= 5
        assert max(_bytes_of(limited, sizes)) <= 400_000
        assert max(_bytes_of(_tasks(store, 500), sizes)) <= 0.6 * sum(whole)


def test_a_sample_of_the_batches_of_a_run_is_enough_to_share_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_batches, "_SAMPLED_MAX", 10)
    read: list[int] = []
    stored = ChunkReader.stored
    monkeypatch.setattr(ChunkReader, "stored", lambda *given: (read.append(1), stored(*given))[1])
    sizes = [(3_000, 10), (3_000, 1_000)]
    with _store(sizes) as store:
        read.clear()
        whole = _bytes_of(_tasks(store), sizes)
        assert len(read) <= 10
        assert len(whole) == 2
        assert max(whole) <= 0.65 * sum(whole)


def test_damaged_batches_of_a_run_are_left_to_the_tasks_that_read_them() -> None:
    sizes = [LIGHT, HEAVY]
    with _store(sizes) as store:
        place = _run(store)
        chunks = ChunkReader(store.log.files).footer(place).chunks
        file = Path(store.url.removeprefix("file://")) / place.location.file
        raw, intact = bytearray(file.read_bytes()), chunks[len(chunks) // 2 :]
        for damaged in ({*chunks} - {*intact}, {*chunks}):
            for chunk in damaged:
                raw[chunk.location.position + chunk.location.length // 2] ^= 1
            file.write_bytes(raw)
            tasks = _tasks(store)
            assert _is_whole(tasks, (0, place.end_offset))
            if len(damaged) < len(chunks):
                assert max(_bytes_of(tasks, sizes)) <= 0.65 * sum(_bytes_of(tasks, sizes))


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 3_000)), min_size=1, max_size=4),
    st.data(),
)
def test_tasks_cover_a_run_once_whatever_the_sizes(sizes: list[Size], data: st.DataObject) -> None:
    with _store(sizes) as store:
        end = sum(count for count, _ in sizes)
        start, most = data.draw(st.integers(0, end - 1)), data.draw(st.integers(20_000, 90_000))
        for limit in ({}, {"max_bytes": most}, {"max_bytes": most, "min_partitions": 3}):
            tasks = _tasks(store, start, **limit)
            assert _is_whole(tasks, (start, end))
            assert "max_bytes" not in limit or max(_bytes_of(tasks, sizes)) <= most + 3_000


def _is_whole(tasks: list[Span], span: Span) -> bool:
    assert all(before[1] == after[0] for before, after in pairwise(tasks))
    return (tasks[0][0], tasks[-1][1]) == span
