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
from kmq_storage.maintenance.trim import plan_retention
from tests.support.engine import open_engine, send_rows
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
