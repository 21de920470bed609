"""Maintenance of many topics with nothing to do: no topic is looked at that can't want any."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kmq_spark.client.store import Store
from kmq_storage.format.entries import TopicEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.checkpoints import snapshot
from kmq_storage.log.index.offset_index import OffsetIndex
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.maintenance.candidates import oldest_rows, wanted_rows
from kmq_storage.maintenance.compact import is_sealed
from kmq_storage.maintenance.maintain import begin, tidy
from kmq_storage.maintenance.manner import PLAIN
from kmq_storage.maintenance.trim import plan_retention
from tests.support.engine import files_below, open_engine, send_rows
from tests.unit.engine.test_checkpoints import ROWS

TOPICS = 20


@pytest.fixture
def store() -> Store:
    """Some topics with a record batch each, all of it in a checkpoint."""
    store = open_engine(file_bytes=64 * 1024)
    names = [f"t{number}" for number in range(TOPICS)]
    made = [TopicEntry(uuid.uuid4().bytes, name, 1, {}) for name in names]
    store.log.commit([Unit(tuple(made))])
    for name in names:
        send_rows(store.log, name, ROWS)
    store.checkpoint()
    return store


@contextmanager
def _counted(monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> Iterator[list[int]]:
    calls: list[int] = []
    original: Callable[..., Any] = getattr(where, name)

    def counting(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        return original(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(where, name, counting)
        yield calls


def test_a_checkpoint_that_is_there_already_restores_no_topic(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    with _counted(monkeypatch, snapshot, "_restored_topic") as restored:
        before = store.checkpoint()
        assert restored == []
    send_rows(store.log, "t0", ROWS)
    assert store.checkpoint().lsn == before.lsn + 1


def test_retention_looks_at_no_row_of_topics_that_keep_everything(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    state = store.log.refresh()
    with _counted(monkeypatch, OffsetIndex, "rows") as looks:
        assert plan_retention(state, 2**60) == []
        assert looks == []
        store.alter_topic("t0", retention=1.0)
        assert len(plan_retention(store.log.refresh(), 2**60)) == 1


def test_maintenance_looks_at_no_partition_that_has_nothing_to_do(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    for name in ("t1", "t2"):
        store.alter_topic(name, retention=1e6)
    store.seal()
    store.alter_topic("t3", cleanup="compact")
    store.compact("t3")
    for _ in ("rows in memory", "rows in pages"):
        assert _looks(store, monkeypatch) == 0
        store.checkpoint()
        store.log.reload()
    send_rows(store.log, "t4", ROWS)
    assert _looks(store, monkeypatch) == 1


def _looks(store: Store, monkeypatch: pytest.MonkeyPatch) -> int:
    with (
        _counted(monkeypatch, OffsetIndex, "runs") as runs,
        _counted(monkeypatch, OffsetIndex, "rows") as rows,
        _counted(monkeypatch, OffsetIndex, "weight") as weights,
    ):
        begin(store.log)
        tidy(store.log, manner=PLAIN)
        return len(runs + rows + weights)


def test_a_look_at_all_rows_finds_those_of_each_partition_in_pages_and_in_memory(store: Store):
    store.seal()
    store.create_topic("wide", partitions=7)
    for number in (6, 2, 2, 5):
        send_rows(store.log, "wide", ROWS, partition=number)
    _check_looks(store.log.refresh())
    store.checkpoint()
    store.log.reload()
    send_rows(store.log, "wide", ROWS, partition=2)
    send_rows(store.log, "t7", ROWS)
    _check_looks(store.log.refresh())


def _check_looks(state: StoreState) -> None:
    counts, oldest = wanted_rows(state, is_sealed), oldest_rows(state)
    for topic in state.topics.values():
        for number, part in enumerate(topic.parts):
            rows, key = list(topic.index(number).rows(0, part.end)), (topic.id, number)
            assert counts.get(key, 0) == sum(map(is_sealed, rows))
            assert oldest.get(key) == min((row.time for row in rows), default=None)


def test_while_a_page_is_damaged_each_partition_is_looked_at_as_nobody_knows_its_rows(
    store: Store,
):
    (page,) = files_below(store.log.files, "pages")
    store.log.files.files[page] = b"damaged"  # type: ignore[attr-defined]
    state = store.log.reload()
    assert len(wanted_rows(state, is_sealed)) == TOPICS
    assert set(oldest_rows(state).values()) == {0}


def test_a_collection_reads_what_one_checkpoint_tells_of_topics_and_of_others_the_pages(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    send_rows(store.log, "t0", ROWS)
    store.checkpoint()
    store.collect()
    roots = [text for text in _texts(store, monkeypatch) if b"definitions" in text]
    assert len(roots) == 1


def _texts(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The JSON that a collection reads."""
    texts: list[bytes] = []
    loads = json.loads

    def noting(text: bytes) -> Any:
        texts.append(text)
        return loads(text)

    with monkeypatch.context() as patched:
        patched.setattr(json, "loads", noting)
        store.collect()
    return texts
