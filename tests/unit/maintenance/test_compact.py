"""Key compaction and merging against a dictionary, with keys in memory and in files."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from kmq_spark.client.store import Store
from kmq_storage import limits
from kmq_storage.maintenance import maintain as maintenance
from kmq_storage.maintenance import newest
from kmq_storage.maintenance.compact import compact_keys, merge, plan_merges, worth_compacting
from kmq_storage.maintenance.maintain import maintain
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.maintenance.survivors import Survivors
from tests.support.engine import Sent, counted, held, open_engine, rows_of, send_rows


@pytest.fixture
def store() -> Store:
    store = open_engine()
    store.create_topic("t", cleanup="compact")
    return store


@pytest.fixture(params=[newest._GATHERED_BYTES, 200], ids=["in memory", "in files"])
def buckets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys gathered in memory, or sorted out into files."""
    monkeypatch.setattr(newest, "_GATHERED_BYTES", request.param)


def _sealed(store: Store, rows: list[Sent], *, segment_bytes: int = 10**6) -> None:
    send_rows(store.log, "t", rows)
    seal(store.log, plan_seal(store.log.refresh(), segment_bytes=segment_bytes))


@pytest.mark.usefixtures("buckets")
@pytest.mark.parametrize("seed", range(5))
def test_the_newest_of_each_key_and_all_without_one_stay_in_place(store: Store, seed: int):
    rng, sent = random.Random(seed), []
    for _ in range(rng.randrange(1, 8)):
        rows = [
            Sent(
                rng.choice([None, b"", *(b"key %d" % n for n in range(60))]),
                rng.choice([None, b"", rng.randbytes(8)]),
                rng.randrange(100),
            )
            for _ in range(rng.randrange(1, 120))
        ]
        _sealed(store, rows, segment_bytes=rng.choice([500, 10**6]))
        sent += rows
        if rng.random() < 0.4:
            store.compact("t")
    report = store.compact("t")
    newest = {row.key: at for at, row in enumerate(sent)}
    kept = {at: row for at, row in enumerate(sent) if row.key is None or newest[row.key] == at}
    assert rows_of(store, "t") == kept
    assert report.conflicts == 0
    assert store.describe_topic("t").rows == len(kept)
    assert store.offsets("t") == {0: (0, len(sent))}


def test_what_is_not_sealed_is_sealed_first(store: Store):
    send_rows(store.log, "t", [Sent(b"k", b"%d" % n) for n in range(5)])
    assert store.compact("t").dropped == 4
    assert rows_of(store, "t") == {4: Sent(b"k", b"4")}


def test_a_tombstone_stays_until_its_delay_is_over_then_goes(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    _sealed(store, [Sent(b"k", b"v"), Sent(b"l", b"w"), Sent(b"k", None)])
    store.compact("t")
    assert rows_of(store, "t") == {1: Sent(b"l", b"w"), 2: Sent(b"k", None)}
    store.compact("t")
    assert len(rows_of(store, "t")) == 2
    monkeypatch.setattr(limits, "TOMBSTONE_DELAY", -1.0)
    assert store.compact("t").dropped == 1
    assert rows_of(store, "t") == {1: Sent(b"l", b"w")}


def test_a_record_without_a_key_is_no_tombstone(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "TOMBSTONE_DELAY", -1.0)
    _sealed(store, [Sent(None, None), Sent(b"k", None), Sent(None, b"v")])
    store.compact("t")
    assert rows_of(store, "t") == {0: Sent(None, None), 2: Sent(None, b"v")}


def test_a_partition_of_which_nothing_is_left_keeps_its_offsets_and_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TOMBSTONE_DELAY", -1.0)
    for _ in range(2):
        _sealed(store, [Sent(b"k", b"v"), Sent(b"k", None)], segment_bytes=1)
    store.compact("t")
    assert rows_of(store, "t") == {}
    assert store.offsets("t") == {0: (0, 4)}
    _sealed(store, [Sent(b"k", b"again")])
    store.compact("t")
    assert rows_of(store, "t") == {4: Sent(b"k", b"again")}
    with store.consumer(topics=["t"]) as consumer:
        assert [record.offset for record in consumer.consume(10, timeout=0)] == [4]
        assert consumer.position() == {"t": {0: 5}}


def test_a_superseded_record_below_the_start_counts_for_nothing(store: Store):
    _sealed(store, [Sent(b"k", b"%d" % n) for n in range(10)])
    store.trim("t", {0: 5})
    store.compact("t")
    assert rows_of(store, "t") == {9: Sent(b"k", b"9")}
    assert store.describe_topic("t").rows == 1


def test_a_segment_with_gaps_that_a_trim_cut_is_counted_right_to_its_end(store: Store):
    _sealed(store, [Sent(b"k", b"%d" % n) for n in range(19)] + [Sent(b"l", b"x")])
    store.compact("t")
    store.trim("t", {0: 10})
    store.compact("t")
    state = store.log.refresh()
    assert counted(state.topic("t").partition(0)) == held(state, "t", 0)
    assert store.describe_topic("t").rows == len(rows_of(store, "t")) == 2
    store.trim("t", {0: 20})
    assert counted(store.log.refresh().topic("t").partition(0)) == (0, 0)


def test_compaction_frees_capacity(store: Store):
    store.create_topic("small", cleanup="compact", capacity=10)
    send_rows(store.log, "small", [Sent(b"k", b"%d" % n) for n in range(10)])
    with pytest.raises(Exception, match="is full"):
        send_rows(store.log, "small", [Sent(b"k", b"x")])
    store.compact("small")
    send_rows(store.log, "small", [Sent(b"k", b"x")] * 9)


def test_a_topic_that_was_compacted_is_not_worth_it_until_more_came(store: Store):
    _sealed(store, [Sent(b"%d" % n, b"v" * 50) for n in range(20)])
    assert worth_compacting(store.log.refresh().topic("t"))
    store.compact("t")
    assert not worth_compacting(store.log.refresh().topic("t"))
    _sealed(store, [Sent(b"%d" % n, b"v" * 50) for n in range(30)])
    assert worth_compacting(store.log.refresh().topic("t"))


def test_small_neighbours_are_merged_until_none_is_small(store: Store):
    store.create_topic("plain", compression="zstd")
    for n in range(10):
        send_rows(store.log, "plain", [Sent(None, b"%d" % n * 30)] * 3)
        store.seal()
    before = rows_of(store, "plain")

    def segments() -> int:
        return len(list(store.log.refresh().topic("plain").index(0).rows(0, 30)))

    assert segments() == 10
    topic = store.log.refresh().topic("plain")
    report = merge(store.log, plan_merges(topic, store.log.state.lsn, segment_bytes=1_500, now=0))
    assert (report.before, report.conflicts) == (10, 0)
    assert segments() == report.after < 10
    assert store.compact("plain").after == 1
    assert store.compact("plain").after == 0
    assert rows_of(store, "plain") == before


def test_maintenance_of_a_slowly_written_topic_writes_a_record_once_per_tier(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(maintenance, "_MERGED", 3)
    store.create_topic("slow")
    for n in range(60):
        send_rows(store.log, "slow", [Sent(None, b"%02d" % n * 1_500)])
        store.seal()
        maintain(store.log)
    rows = store.log.refresh().topic("slow").index(0).rows(0, 60)
    assert len(list(rows)) < 3 * 4
    log_and_seal = 2.5  # with what a small segment has besides its records
    assert store.stats().write_amplification < log_and_seal + math.log(60, 3)
    assert len(rows_of(store, "slow")) == 60


def test_of_two_compactors_on_one_plan_the_second_is_refused(store: Store):
    _sealed(store, [Sent(b"k", b"%d" % n) for n in range(5)])
    _sealed(store, [Sent(b"k", b"%d" % n) for n in range(5)])
    state = store.log.refresh()
    topic, lsn = state.topic("t"), state.lsn
    stale = open_engine(store.log.files)  # type: ignore[arg-type]
    stale_topic = stale.log.refresh().topic("t")
    assert compact_keys(store.log, topic, lsn).conflicts == 0
    report = compact_keys(stale.log, stale_topic, lsn)
    assert (report.after, report.conflicts) == (0, 1)
    assert rows_of(store, "t") == {9: Sent(b"k", b"4")}


def test_a_topic_that_is_deleted_meanwhile_is_a_conflict_and_no_error(store: Store):
    _sealed(store, [Sent(b"k", b"%d" % n) for n in range(5)])
    send_rows(store.log, "t", [Sent(b"k", b"x")])
    plan = list(plan_seal(store.log.refresh()))
    lsn, topic = store.log.state.lsn, store.log.state.topic("t")
    store.delete_topic("t")
    assert seal(store.log, plan).conflicts == 1
    assert compact_keys(store.log, topic, lsn).conflicts == 1


def test_survivors_are_one_bit_per_offset():
    span = Survivors(100, 140)

    span.add(np.array([100, 107, 108, 139]))
    assert span.count(100, 140) == 4
    assert span.count(101, 108) == 1
    assert span.count(90, 108) == 2
    assert span.of(np.array([100, 101, 107, 139])).tolist() == [True, False, True, True]


def _age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all that was sent so far be old enough."""
    monkeypatch.setattr(limits, "TOMBSTONE_DELAY", -2.0)


def _idle_rounds(store: Store) -> list[int]:
    """What maintenance drops in two rounds while nobody writes."""
    return [maintain(store.log).compacted.dropped for _ in range(2)]


def test_old_tombstones_of_an_idle_topic_are_dropped_by_maintenance_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    _sealed(store, [Sent(b"k", b"v"), Sent(b"l", b"w"), Sent(b"k", None)])
    assert _idle_rounds(store) == [1, 0]
    store.checkpoint()
    store.log.reload()
    _age(monkeypatch)
    assert _idle_rounds(store) == [1, 0]
    assert rows_of(store, "t") == {1: Sent(b"l", b"w")}
    assert _is_left_alone(store)


def _is_left_alone(store: Store) -> bool:
    before = store.log.refresh().lsn
    maintain(store.log)
    return store.log.refresh().lsn == before


def test_few_old_tombstones_behind_much_that_was_compacted_are_dropped(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    _sealed(store, [Sent(b"%d" % n, b"v" * 50) for n in range(30)])
    store.compact("t")
    _sealed(store, [Sent(b"7", None)])
    assert not worth_compacting(store.log.refresh().topic("t"))
    assert _idle_rounds(store) == [0, 0]
    _age(monkeypatch)
    assert _idle_rounds(store) == [2, 0]
    assert len(rows_of(store, "t")) == 29
    assert _is_left_alone(store)


def test_tombstones_that_were_trimmed_away_are_looked_for_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    _sealed(store, [Sent(b"%d" % n, b"v" * 50) for n in range(30)])
    store.compact("t")
    _sealed(store, [Sent(b"7", None)], segment_bytes=1)
    _sealed(store, [Sent(b"%d" % n, b"v" * 10) for n in range(20)], segment_bytes=1)
    store.trim("t", {0: 31})
    _age(monkeypatch)
    _idle_rounds(store)
    assert len(rows_of(store, "t")) == 20
    assert _is_left_alone(store)


def test_a_topic_of_which_compaction_left_nothing_is_left_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    _sealed(store, [Sent(b"k", None)])
    store.trim("t", {0: 1})
    _age(monkeypatch)
    assert _idle_rounds(store) == [0, 0]
    assert _is_left_alone(store)
