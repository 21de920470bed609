"""Those who write look after their store: what is due is done, by one at a time, harming nobody."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage import limits, paths
from kmq_storage.errors import ClosedError
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import Slice
from kmq_storage.maintenance import background, maintain, manner
from kmq_storage.maintenance.background import BackgroundMaintenance
from kmq_storage.maintenance.replacement import Replacement
from kmq_storage.objects.memory import MemoryDisk
from tests.support.engine import Sent, files_below, open_engine, send_rows
from tests.support.threads import no_more_threads
from tests.support.waiting import until


@pytest.fixture
def store() -> kmq.Store:
    store = open_engine(MemoryDisk(f"memory://{uuid.uuid4().hex}"))
    store.create_topic("t", retention=0.05)
    return store


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next round comes soon, and what fills no segment is sealed without waiting."""
    monkeypatch.setattr(limits, "MAINTAIN_INTERVAL", 0.01)
    monkeypatch.setattr(limits, "SEAL_AFTER", 0.0)
    monkeypatch.setattr(background, "_IDLE_ROUNDS", 2)


def _run(store: kmq.Store) -> BackgroundMaintenance:
    work = BackgroundMaintenance(store.log)
    work.start()
    return work


def test_retention_is_kept_also_while_nobody_writes(store: kmq.Store):
    work = _run(store)
    send_rows(store.log, "t", [Sent(None, b"v")] * 5)
    until(lambda: store.offsets("t") == {0: (5, 5)})
    work.close()


def test_where_no_more_threads_can_be_had_the_next_producer_tries_again(store: kmq.Store):
    work = BackgroundMaintenance(store.log)
    with no_more_threads():
        work.start()
    work.start()
    send_rows(store.log, "t", [Sent(None, b"v")] * 5)
    until(lambda: store.offsets("t") == {0: (5, 5)})
    work.close()
    with no_more_threads():
        other = BackgroundMaintenance(store.log)
        other.start()
    other.close()


def test_whoever_has_the_lease_works_alone(store: kmq.Store):
    lease = store.log.files.open_lock(paths.MAINTAIN_LOCK)
    assert lease.try_acquire()
    work = _run(store)
    send_rows(store.log, "t", [Sent(None, b"v")] * 5)
    time.sleep(0.3)
    assert store.offsets("t") == {0: (0, 5)}
    lease.release()
    until(lambda: store.offsets("t") == {0: (5, 5)})
    work.close()


def test_an_error_is_told_and_the_next_round_goes_on(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    retain, failures = maintain.retain, [OSError("injected")]

    def failing(*arguments: object, **options: object) -> object:
        if failures:
            raise failures.pop()
        return retain(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(maintain, "retain", failing)
    with caplog.at_level(logging.WARNING):
        work = _run(store)
        send_rows(store.log, "t", [Sent(None, b"v")] * 5)
        until(lambda: store.offsets("t") == {0: (5, 5)})
    assert "injected" in caplog.text
    work.close()


def test_a_closed_one_does_nothing_more(store: kmq.Store):
    work = _run(store)
    work.close()
    work.start()
    send_rows(store.log, "t", [Sent(None, b"v")] * 5)
    time.sleep(0.2)
    assert store.offsets("t") == {0: (0, 5)}
    assert files_below(store.log.files, paths.SEGMENT_FOLDER) == []  # type: ignore[arg-type]


def test_one_whose_store_is_closed_before_it_ends_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    died: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    store = kmq.open(tmp_path / "s", maintenance=False)
    work = _run(store)
    thread = work._thread
    store.close()  # a store closes its log before this
    assert thread is not None
    thread.join(20)
    assert not thread.is_alive()
    assert died == []


def test_a_closed_one_does_not_rest_to_the_end(store: kmq.Store, monkeypatch: pytest.MonkeyPatch):
    resting = threading.Event()

    def for_an_hour(_worked: float, _since: float) -> float:
        resting.set()
        return 3_600.0

    monkeypatch.setattr(manner, "resting", for_an_hour)
    monkeypatch.setattr(manner, "_PIECE", -1.0)
    store.create_topic("kept")
    work = _run(store)
    while not resting.is_set():
        send_rows(store.log, "kept", [Sent(None, b"v")])
    thread = work._thread
    store.log.close()
    work.close()
    assert thread is not None
    assert not thread.is_alive()


def test_a_store_that_is_closed_while_it_seals_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    slices = Replacement.slices
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
        send_rows(store.log, "t", [Sent(None, b"v")] * 5)

        def closing(self: Replacement, reader: ChunkReader) -> Iterator[Slice]:
            yield from slices(self, reader)
            store.log.close()

        monkeypatch.setattr(Replacement, "slices", closing)
        with pytest.raises(ClosedError):
            store.seal()
    assert not list(tmp_path.glob("store/segments/*/*/*"))
