"""Taking record after record: what is held ahead, and what is noted before a commit says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from kmq_spark.client.queues import ahead, queue
from kmq_storage import paths
from kmq_storage.queues.slips import OwnPage, SlipPage
from tests.support.clock import Clock
from tests.support.interruption import Interruption
from tests.support.processes import exit_codes, start_python

#: More than it takes to be fast, and to hold some ahead.
FAST, RECORDS = 40, 300


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine does meanwhile, nobody counts as slow."""
    monkeypatch.setattr(ahead, "PATIENCE", 1e6)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def opened(url: str, clock: Clock) -> kmq.Store:
    """A store whose locks end when the clock says so."""
    return open_store(url, durability="os", environment=clock.environment)


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[kmq.Store]:
    with opened(url, clock) as here:
        yield here


def _fill(store: kmq.Store, rows: int = RECORDS, **settings: Any) -> None:
    store.create_queue("q", **settings)
    with store.producer() as producer:
        for n in range(rows):
            producer.send_to_queue("q", b"%d" % n)


def filled(store: kmq.Store, other_store: kmq.Store) -> kmq.Queue:
    """Another receiver of what is there to be received, like that of another process."""
    _fill(store, lock_timeout=3_600)
    return other_store.queue("q")


@pytest.fixture
def other(store: kmq.Store, url: str, clock: Clock) -> Iterator[kmq.Queue]:
    with opened(url, clock) as other_store:
        yield filled(store, other_store)


def _finish(queue: kmq.Queue, rows: int) -> None:
    """Receive and acknowledge so many, one by one."""
    for _ in range(rows):
        (held,) = queue.receive()
        held.ack()


def _rest(queue: kmq.Queue) -> list[int]:
    """The numbers of all records that can be had, each acknowledged."""
    found = []
    while held := queue.receive(100):
        queue.ack(held)
        found += [int(each.value) for each in held]
    return sorted(found)


def test_record_after_record_takes_few_commits(store: kmq.Store, patient: None):
    _fill(store)
    queue = store.queue("q")
    before = store.log.refresh().lsn
    _finish(queue, RECORDS)
    assert queue.receive() == []
    assert store.log.refresh().lsn - before < RECORDS // 4
    assert queue.stats().acked == queue.stats().delivered == RECORDS


def test_all_see_soon_what_was_acknowledged_and_get_what_a_busy_receiver_does_not_take(
    store: kmq.Store,
):
    _fill(store, FAST + 1)
    busy, other = store.queue("q"), store.queue("q")
    _finish(busy, FAST)
    (held,) = other.receive(timeout=None)
    assert (int(held.value), held.delivery_count) == (FAST, 1)
    held.ack()
    assert store.queues()[0].stats.acked == FAST + 1


@pytest.mark.parametrize("ending", ["close", "stats", "queues", "state", "receive_arrow"])
def test_nothing_is_kept_ahead_beyond(store: kmq.Store, patient: None, ending: str):
    _fill(store)
    queue, other = store.queue("q"), store.queue("q")
    _finish(queue, FAST)
    assert other.receive(RECORDS) != other.receive(RECORDS) == [], "some are held ahead"
    if ending == "queues":
        (info,) = store.queues()
        assert (info.stats.acked, info.stats.delivered) == (FAST, FAST + info.stats.locked)
    else:
        getattr(queue, ending)()
    left = other.receive(RECORDS) if ending != "receive_arrow" else []
    assert all(each.delivery_count == 1 for each in left)
    assert other.stats().ready == 0
    assert other.stats().acked == FAST
    if ending == "close":
        assert not os.listdir(f"{store.log.files.url}/{paths.SLIP_FOLDER}")


@pytest.mark.parametrize(
    ("durability", "settings"),
    [
        ("fsync", {}),
        ("os", {"order": "strict"}),
        ("os", {"capacity": 1_000}),
    ],
)
def test_where_others_wait_for_each_record_nothing_is_held_ahead(
    url: str, patient: None, durability: str, settings: dict[str, Any]
):
    with kmq.open(url, durability=durability) as store:
        _fill(store, **settings)
        _finish(store.queue("q"), FAST)
        with kmq.open(url, durability=durability) as other:
            stats = other.queues()[0].stats
    assert (stats.acked, stats.locked) == (FAST, 0)


def test_without_prefetch_nothing_is_held_ahead(store: kmq.Store, url: str, patient: None):
    _fill(store)
    _finish(store.queue("q", prefetch=1), FAST)
    with kmq.open(url, durability="os") as other:
        stats = other.queues()[0].stats
    assert (stats.acked, stats.locked) == (FAST, 0)


def test_urgent_records_are_not_behind_those_held_ahead(store: kmq.Store, patient: None):
    _fill(store)
    queue = store.queue("q")
    with store.producer() as producer:
        producer.send_to_queue("q", b"1", priority=9).result()
    _finish(queue, FAST)
    with store.producer() as producer:
        producer.send_to_queue("q", b"-1", priority=9).result()
    assert queue.receive()[0].value == b"-1"


# --- answers -----------------------------------------------------------------------------


def _fast(store: kmq.Store) -> tuple[kmq.Queue, kmq.Delivery]:
    """A receiver that holds some ahead, and one of its records."""
    queue = store.queue("q")
    _finish(queue, FAST)
    (held,) = queue.receive()
    return queue, held


def test_a_second_answer_is_a_late_one(store: kmq.Store, patient: None):
    _fill(store)
    queue, held = _fast(store)
    held.ack()
    for answer in (held.ack, held.nack, held.reject, lambda: held.extend(9), queue.stats, held.ack):
        if answer == queue.stats:  # what was noted is committed
            assert queue.stats().acked == FAST + 1
            continue
        with pytest.raises(kmq.LeaseExpiredError, match="too late"):
            answer()


def test_other_answers_are_commits_beside_what_is_noted(store: kmq.Store, patient: None):
    _fill(store, lock_timeout=600)
    queue, failed = _fast(store)
    failed.nack(0)
    ((rejected,), (extended,), (one,), (two,)) = (queue.receive() for _ in range(4))
    rejected.reject("bad")
    extended.extend(1_000)
    queue.ack([one, two])
    with pytest.raises(kmq.LeaseExpiredError):
        failed.ack()
    extended.ack()
    stats = queue.stats()
    assert (stats.acked, stats.dead, stats.locked) == (FAST + 3, 1, 0)
    assert int(failed.value) in _rest(queue)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_has_acks_of_records_that_were_held_ahead(
    store: kmq.Store, patient: None, commits: bool
):
    _fill(store)
    queue, held = _fast(store)
    with store.producer() as producer:
        try:
            with producer.transaction() as tx:
                tx.ack(held)
                if not commits:
                    raise RuntimeError
        except RuntimeError:
            held.ack()
    with pytest.raises(kmq.LeaseExpiredError):
        held.ack()
    assert queue.stats().acked == FAST + 1


def test_what_can_not_be_read_is_given_back_with_the_rest(
    store: kmq.Store, patient: None, monkeypatch: pytest.MonkeyPatch
):
    _fill(store)
    held = store.queue("q")
    _finish(held, FAST)
    held.stats()
    real, calls = queue.deliveries_of, count()

    def fails_once(*arguments: Any) -> Any:
        if next(calls) == 0:
            raise kmq.CorruptionError("a damaged batch")
        return real(*arguments)

    _finish(held, FAST)
    monkeypatch.setattr(queue, "deliveries_of", fails_once)
    with pytest.raises(kmq.CorruptionError):
        _finish(held, RECORDS)
    done = held.stats().acked
    assert _rest(held) == list(range(done, RECORDS))


# --- who dies, or comes too late ----------------------------------------------------------

#: Acknowledges so many, one by one, tells which in a file, and is killed with one in hand.
DIES = """
import os, signal, sys
import kmq_spark as kmq
from kmq_spark.client.queues import ahead

ahead.PATIENCE = 1e6
with kmq.open(sys.argv[1], durability="os") as store, store.queue("q") as queue:
    for n in range(int(sys.argv[2])):
        (held,) = queue.receive()
        held.ack()
        with open(sys.argv[3], "a") as acked:
            print(held.value.decode(), file=acked)
    queue.receive()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_acknowledged_never_comes_again_though_the_receiver_is_killed(
    store: kmq.Store, url: str, clock: Clock, tmp_path: Path
):
    _fill(store, lock_timeout=3_600)
    acked = tmp_path / "acked"
    for _ in range(2):
        (code,) = exit_codes([start_python(DIES, url, str(FAST + 10), str(acked))])
        assert code == -signal.SIGKILL
    clock.pass_seconds(3_601)
    left = _rest(store.queue("q"))
    assert sorted([*left, *map(int, acked.read_text().split())]) == list(range(RECORDS))
    stats = store.queues()[0].stats
    assert (stats.acked, stats.ready, stats.locked) == (RECORDS, 0, 0)


def _around_the_note(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], Any], after: Callable[[], Any]
) -> None:
    store_word = OwnPage.note

    def note(page: OwnPage, places: Sequence[int], number: int, group: int) -> bool:
        before()
        counts = store_word(page, places, number, group)
        after()
        return counts and page._words.load(0) == page._not_taken_over

    monkeypatch.setattr(OwnPage, "note", note)


def _later(other: kmq.Queue, clock: Clock) -> list[kmq.Delivery]:
    """What another receiver gets after half the time of a lock."""
    clock.pass_seconds(1_801)
    return other.receive(RECORDS)


def test_who_is_stopped_before_it_notes_is_told_that_it_is_too_late(
    store: kmq.Store, other: kmq.Queue, clock: Clock, patient: None, monkeypatch: pytest.MonkeyPatch
):
    _, held = _fast(store)
    taken = _later(other, clock)
    _around_the_note(monkeypatch, lambda: taken.extend(_later(other, clock)), lambda: None)
    with pytest.raises(kmq.LeaseExpiredError, match="too late"):
        held.ack()
    assert held.value in [each.value for each in taken]
    monkeypatch.undo()
    taken[-1].ack()
    assert other.stats().acked == FAST + 1
    assert {int(each.value) for each in taken} == set(range(FAST, RECORDS))


def test_who_is_stopped_after_it_noted_has_acknowledged(
    store: kmq.Store, other: kmq.Queue, clock: Clock, patient: None, monkeypatch: pytest.MonkeyPatch
):
    _, held = _fast(store)
    taken = _later(other, clock)
    _around_the_note(monkeypatch, lambda: None, lambda: taken.extend(_later(other, clock)))
    held.ack()
    assert held.value not in [each.value for each in taken]
    monkeypatch.undo()
    assert other.stats().acked == FAST + 1


def test_who_was_taken_over_goes_on_with_a_slip_of_another_name(
    store: kmq.Store, other: kmq.Queue, clock: Clock, patient: None
):
    first, held = _fast(store)
    _later(other, clock)
    taken = _later(other, clock)  # the locks of the first one have just ended
    other.ack(taken)
    with pytest.raises(kmq.LeaseExpiredError):
        held.ack()
    clock.pass_seconds(1_801)  # and now the first ones of the other one
    _finish(first, RECORDS - FAST - len(taken))
    assert first.receive() == []
    assert other.stats().acked == RECORDS


def _spoil(page: SlipPage, index: int) -> None:
    page._words.store(index, page._words.load(index) ^ 1 << 33)


def test_a_live_receiver_that_finds_its_slip_damaged_takes_another_one(
    store: kmq.Store, clock: Clock, patient: None, caplog: pytest.LogCaptureFixture
):
    _fill(store, lock_timeout=3_600)
    receiver, held = _fast(store)
    held.ack()
    damaged = receiver._ahead._page
    assert damaged is not None
    place = receiver._ahead._slip._slip.runs[0]  # type: ignore[union-attr]
    _spoil(damaged, 1 + held.offset - place.first)
    assert receiver.stats().acked == FAST
    assert "can't be proven" in caplog.text
    clock.pass_seconds(3_601)
    assert _rest(receiver) == list(range(FAST, RECORDS))
    assert receiver._ahead._page is not damaged or damaged.is_used_up  # taken with the next turn


def test_a_slip_that_says_that_somebody_may_have_taken_over_has_its_receiver_ask_the_log(
    store: kmq.Store, patient: None
):
    _fill(store)
    receiver, held = _fast(store)
    page = receiver._ahead._page
    assert page is not None
    _spoil(page, 0)
    before = store.log.refresh().lsn
    held.ack()
    assert store.log.refresh().lsn > before
    assert store.queues()[0].stats.acked == FAST + 1
    assert int(held.value) not in _rest(receiver)


def test_an_interrupted_receiver_goes_on_and_loses_nothing(
    store: kmq.Store, clock: Clock, patient: None
):
    acked: list[int] = []
    _fill(store, 9_000, lock_timeout=3_600)
    receiver = store.queue("q")
    _finish(receiver, FAST)
    for place in count(1, 9):
        with Interruption(place, "/kmq_spark/client/queue", "/slips.py") as interruption:
            try:
                for _ in range(60):
                    (held,) = receiver.receive(timeout=None)
                    held.ack()
                    acked.append(int(held.value))
            except KeyboardInterrupt:
                clock.pass_seconds(400)  # what the call held comes again in the end
                continue
        if not interruption.came:
            break
    clock.pass_seconds(3_601)
    left = _rest(receiver)
    assert not set(left) & set(acked)
    assert len(acked) == len(set(acked))
    assert receiver.stats().acked == 9_000
    assert store.queues()[0].stats.locked == 0
