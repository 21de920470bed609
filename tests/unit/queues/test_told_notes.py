"""What is told of a queue whose receiver was killed after it noted what it acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from kmq_spark.client.queues import ahead
from kmq_spark.server.view import View
from kmq_storage.tables.reading import table_of
from tests.support.clock import Clock

RECORDS, ACKED = 60, 45


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def left(url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A receiver that commits nothing any more, as if killed, and whose locks ended."""
    monkeypatch.setattr(ahead, "PATIENCE", 1e6)
    with open_store(url, durability="os", environment=clock.environment) as store:
        store.create_queue("q")
        with store.producer() as producer:
            for n in range(RECORDS):
                producer.send_to_queue("q", b"%d" % n)
        receiver = store.queue("q")
        for _ in range(ACKED):
            receiver.receive()[0].ack()
        clock.pass_seconds(31)
        yield clock


def _listed(store: kmq.Store) -> tuple[int, ...]:
    stats = store.queues()[0].stats
    return stats.ready, stats.locked, stats.acked


def _tabled(store: kmq.Store) -> tuple[int, ...]:
    (row,) = table_of(store.log, store.log.refresh(), "queues").to_pylist()
    return row["ready"], row["locked"], row["acked"]


def _served(store: kmq.Store) -> tuple[int, ...]:
    (row,) = View(lambda: store).seen(["queues"]).tables["queues"].to_pylist()
    return row["ready"], row["locked"], row["acked"]


def _counted(store: kmq.Store) -> tuple[int, ...]:
    stats = store.queue("q").stats()
    return stats.ready, stats.locked, stats.acked


def _in_rows(store: kmq.Store) -> tuple[int, ...]:
    states = store.queue("q").state()["state"].to_pylist()
    return states.count("ready"), states.count("locked"), ACKED


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("look", [_listed, _tabled, _served, _counted, _in_rows])
def test_all_tell_what_a_killed_receiver_acknowledged(
    url: str, left: Clock, look: Callable[[kmq.Store], tuple[int, ...]], read_only: bool
):
    settings = {"read_only": True} if read_only else {"durability": "os"}
    with open_store(url, environment=left.environment, **settings) as store:
        assert look(store) == (RECORDS - ACKED, 0, ACKED)
        assert look(store) == (RECORDS - ACKED, 0, ACKED)


def test_who_only_reads_changes_nothing(url: str, left: Clock):
    with open_store(url, read_only=True, environment=left.environment) as store:
        before = store.log.refresh().lsn
        _listed(store), _in_rows(store)
        assert (store.log.refresh().lsn, len(store.log.state.queue("q").slips)) == (before, 1)
