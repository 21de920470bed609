"""Trims, by hand and by retention: what goes, what the counts say, and who is told."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from kmq_spark.client.store import Store
from kmq_spark.errors import OffsetOutOfRangeError, QueueFullError
from kmq_storage.maintenance.maintain import tidy
from kmq_storage.maintenance.manner import PLAIN
from kmq_storage.maintenance.reports import CompactReport, SealReport
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.maintenance.trim import plan_retention, plan_trim, trim
from tests.support.engine import Sent, counted, held, open_engine, rows_of, send_rows

SECOND = 1_000_000


@pytest.fixture
def store() -> Store:
    return open_engine()


def _send(store: Store, count: int) -> None:
    send_rows(store.log, "t", [Sent(None, b"v" * 10)] * count)


def _retained(store: Store, now: int) -> dict[int, int]:
    return {each.partition: each.start for each in plan_retention(store.log.refresh(), now)}


def _now(store: Store) -> int:
    return store.log.environment.now_us()


def test_retention_by_time_counts_from_the_commit_and_gives_up_whole_rows(store: Store):
    store.create_topic("t", retention=10.0)
    _send(store, 3)
    _send(store, 4)
    assert _retained(store, _now(store)) == {}
    assert _retained(store, _now(store) + 11 * SECOND) == {0: 7}


def test_a_segment_stays_until_its_newest_record_may_go(store: Store):
    store.create_topic("t", retention=10.0)
    _send(store, 3)
    _send(store, 4)
    rows = list(store.log.refresh().topic("t").index(0).rows(0, 7))
    store.seal()
    (row,) = store.log.refresh().topic("t").index(0).rows(0, 7)
    assert row.time == max(each.time for each in rows)
    assert _retained(store, row.time + 10 * SECOND) == {}
    assert _retained(store, row.time + 10 * SECOND + 1) == {0: 7}


def test_retention_by_bytes_keeps_at_least_so_many(store: Store):
    store.create_topic("t", retention_bytes=100)
    for _ in range(20):
        _send(store, 1)
    assert _retained(store, 0) == {0: 10}
    store.trim("t", {0: 10})
    assert _retained(store, 0) == {}


def test_with_both_settings_records_go_as_soon_as_one_of_them_lets_them(store: Store):
    store.create_topic("t", retention=10.0, retention_bytes=100)
    for _ in range(20):
        _send(store, 1)
    assert _retained(store, _now(store)) == {0: 10}
    assert _retained(store, _now(store) + 11 * SECOND) == {0: 20}


def test_without_retention_and_in_compacted_topics_nothing_is_given_up(store: Store):
    store.create_topic("t")
    store.create_topic("c", cleanup="compact", retention=0.001, retention_bytes=1)
    _send(store, 5)
    send_rows(store.log, "c", [Sent(b"k", b"v" * 50)] * 5)
    assert plan_retention(store.log.refresh(), _now(store) + 10**9) == []
    store.alter_topic("c", cleanup="delete")
    (given_up,) = plan_retention(store.log.refresh(), _now(store) + 10**9)
    assert (given_up.topic.name, given_up.start) == ("c", 5)


def test_maintain_trims_by_retention_and_says_so(store: Store):
    store.create_topic("t", retention=timedelta(microseconds=1))
    _send(store, 5)
    _send(store, 1)
    report = store.maintain(grace=0)
    assert report.trimmed.starts["t"][0] >= 5
    assert report.checkpoint.lsn


def test_a_trim_inside_of_rows_counts_what_is_left_however_it_goes_on(store: Store):
    rng = random.Random(4)
    for _ in range(10):
        store.create_topic("t", cleanup="compact")
        for _ in range(6):
            keys = [b"%d" % rng.randrange(9) for _ in range(rng.randrange(1, 15))]
            send_rows(store.log, "t", [Sent(key, b"v" * rng.randrange(30)) for key in keys])
        seal(store.log, plan_seal(store.log.refresh(), segment_bytes=rng.choice([300, 10**6])))
        end = store.offsets("t")[0][1]
        for _ in range(12):
            if rng.random() < 0.3:
                store.compact("t")
            store.trim("t", {0: min(store.offsets("t")[0][0] + rng.randrange(9), end)})
            state = store.log.refresh()
            assert counted(state.topic("t").partition(0)) == held(state, "t", 0)
        store.trim("t", {0: end})
        assert counted(store.log.refresh().topic("t").partition(0)) == (0, 0)
        store.delete_topic("t")


def test_a_trim_below_the_start_does_nothing_and_beyond_the_end_is_an_error(store: Store):
    store.create_topic("t", partitions=2)
    _send(store, 5)
    assert store.trim("t", {0: 3}).starts == {"t": {0: 3}}
    lsn = store.log.refresh().lsn
    assert store.trim("t", {0: 2}).starts == {}
    assert store.log.refresh().lsn == lsn
    with pytest.raises(OffsetOutOfRangeError, match="which holds 3 to 5"):
        store.trim("t", {0: 6})
    assert list(rows_of(store, "t")) == [3, 4]


def test_a_trim_to_an_instant_goes_to_the_first_record_since(store: Store):
    store.create_topic("t")
    send_rows(store.log, "t", [Sent(None, b"v", n * SECOND) for n in (5, 1, 9, 3)])
    store.trim("t", datetime.fromtimestamp(6, UTC))
    assert store.offsets("t") == {0: (2, 4)}
    store.trim("t", datetime.fromtimestamp(60, UTC))
    assert store.offsets("t") == {0: (4, 4)}


def test_an_instant_of_a_record_that_was_trimmed_finds_the_next_one(store: Store):
    store.create_topic("t")
    send_rows(store.log, "t", [Sent(None, b"v", n) for n in (9, 1, 2, 3)])
    send_rows(store.log, "t", [Sent(None, b"v", n) for n in (4, 8)])
    store.trim("t", {0: 1})
    when = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=7)
    for _ in range(2):
        assert store.offsets_for_time("t", when) == {0: 5}
        store.seal()


def test_of_two_trims_on_one_plan_the_second_is_refused(store: Store):
    store.create_topic("t")
    _send(store, 5)
    state = store.log.refresh()
    plan, lsn = plan_trim(state.topic("t"), {0: 2}), state.lsn
    assert trim(store.log, plan, lsn).rows == 2
    assert trim(store.log, plan, lsn).starts == {}
    assert store.describe_topic("t").rows == 3


def test_a_trim_frees_capacity(store: Store):
    store.create_topic("t", capacity=5)
    _send(store, 5)
    with pytest.raises(QueueFullError):
        _send(store, 1)
    store.trim("t", {0: 3})
    _send(store, 3)
    with pytest.raises(QueueFullError):
        _send(store, 1)


def test_a_trim_by_hand_is_done_though_the_partition_is_sealed_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t")
    _send(store, 4)
    commit = store.log.commit

    def overtaken(units: object, **options: object) -> object:
        monkeypatch.setattr(store.log, "commit", commit)
        store.seal()
        return commit(units, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store.log, "commit", overtaken)
    assert store.trim("t", {0: 3}).starts == {"t": {0: 3}}
    assert store.offsets("t") == {0: (3, 4)}


def test_a_topic_that_is_deleted_meanwhile_is_nothing_to_tidy(store: Store):
    assert tidy(store.log, ("gone", 0), manner=PLAIN) == (SealReport(), CompactReport())


def test_trims_of_many_partitions_are_one_commit_and_a_refused_one_keeps_none_of_the_others(
    store: Store,
):
    store.create_topic("t", partitions=5, retention=10.0)
    for number in range(5):
        send_rows(store.log, "t", [Sent(None, b"v")] * 4, partition=number)
    state = store.log.refresh()
    plan = plan_retention(state, _now(store) + 11 * SECOND)
    before = state.lsn
    assert trim(store.log, plan[:3], state.lsn).starts == {"t": {0: 4, 1: 4, 2: 4}}
    assert store.log.refresh().lsn == before + 1
    report = trim(store.log, plan, before)
    assert (report.starts, report.rows) == ({"t": {3: 4, 4: 4}}, 8)
    assert store.offsets("t") == dict.fromkeys(range(5), (4, 4))
