"""A new run takes in earlier ones: where messages come slowly, the newest ten are in two places.

Finds: newest messages in many runs though there was time to merge them; a backlog that is written
again and again; ends of queues that stay for ever.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kmq_spark.client.store import Store
from kmq_storage import limits
from kmq_storage.maintenance.maintain import tidy
from kmq_storage.maintenance.manner import PLAIN
from kmq_storage.objects.memory import MemoryDisk
from tests.support.clock import Clock
from tests.support.keyed import TOPIC, files_read
from tests.support.storage import open_log

_QUEUES = [f"q{number}" for number in range(20)]


@pytest.fixture
def disk() -> MemoryDisk:
    """Where the store is."""
    return MemoryDisk(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def clock() -> Clock:
    """The time of the store."""
    return Clock()


@pytest.fixture
def store(disk: MemoryDisk, clock: Clock) -> Iterator[Store]:
    """A store that is maintained by hand."""
    log = open_log(disk, durable=False, file_bytes=2**20, environment=clock.environment)
    with Store(log, maintenance=False) as opened:
        yield opened


def _sealed(store: Store, clock: Clock, *, seconds: float, bytes_each: int = 100) -> None:
    """Seal one more message of each queue, so much later, with all that is due then."""
    clock.pass_seconds(seconds)
    store.keyed_queues(TOPIC).put_batch(_QUEUES, [b"x" * bytes_each] * len(_QUEUES))
    tidy(store.log, seal_after=0, manner=PLAIN)


def _runs(store: Store) -> int:
    topic = store.log.refresh().topic(TOPIC)
    return len(list(topic.index(0).rows(0, topic.partition(0).end)))


def test_the_newest_ten_are_in_two_runs_where_seals_come_slowly(
    store: Store, clock: Clock, disk: MemoryDisk
):
    for turn in range(60):
        _sealed(store, clock, seconds=600)
        if turn >= 9:
            assert files_read(disk, "q2", turn - 9) <= 2


@pytest.mark.parametrize("share", [0.5, 0.75])
def test_the_newest_ten_are_in_five_runs_at_most_where_seals_get_smaller(
    store: Store, clock: Clock, disk: MemoryDisk, share: float
):
    for turn in range(40):
        _sealed(store, clock, seconds=600, bytes_each=1 + int(1_000 * share ** (turn % 10)))
        if turn >= 9:
            assert files_read(disk, "q2", turn - 9) <= 5


def test_seals_that_come_fast_are_merged_only_when_they_have_grown(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TAKEN_IN_BYTES", 100)
    for _ in range(3):
        _sealed(store, clock, seconds=1)
    assert _runs(store) == 3
    _sealed(store, clock, seconds=600)
    assert _runs(store) == 1


def test_a_run_that_takes_in_earlier_ones_drops_what_is_dead(store: Store, clock: Clock):
    _sealed(store, clock, seconds=600)
    store.keyed_queues(TOPIC).delete(*_QUEUES)
    clock.pass_seconds(limits.TOMBSTONE_DELAY)
    store.keyed_queues(TOPIC).put("new", b"x").result()
    _, compacted = tidy(store.log, seal_after=0, manner=PLAIN)
    assert compacted.dropped == len(_QUEUES)
    assert store.keyed_queues(TOPIC).names() == ["new"]
