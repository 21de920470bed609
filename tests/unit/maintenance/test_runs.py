"""Runs: sealed records of keyed topics in the order of their queues, and merging them.

Finds: a process that dies in the middle and leaves queues that lack, double or move messages; runs
that no Arrow tool opens, or that are not in the order they say; merging that takes the memory of
all it merges; a get that looks into more places than it must.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.client.store import Store
from kmq_storage import limits
from kmq_storage.copying.topics import copy_topics
from kmq_storage.format import queue_directory
from kmq_storage.log.reading.scan import Slice
from kmq_storage.maintenance.collect import collect
from kmq_storage.maintenance.maintain import tidy
from kmq_storage.maintenance.manner import PLAIN
from kmq_storage.maintenance.runs import RunMerge, Sorted, sorted_records
from kmq_storage.maintenance.trim import plan_trim, trim
from tests.support.dying_disk import Died, DyingDisk
from tests.support.engine import open_engine
from tests.support.keyed import STEPS, TOPIC, files_read, merge_runs, thin_runs


def _fill(queues: KeyedQueues, turn: int, names: int = 7, messages: int = 40) -> None:
    listed = [f"q{number * 5 % names}" for number in range(messages)]
    queues.put_batch(listed, [b"%d.%d" % (turn, number) for number in range(messages)])


def _contents(store: Store) -> dict[str | bytes, list[bytes]]:
    queues = store.keyed_queues(TOPIC)
    return {name: queues.get(name, 0, 9_999) for name in queues.names()}


@pytest.mark.parametrize("step", STEPS)
def test_who_dies_anywhere_leaves_every_message_where_it_was(step: str):
    disk = DyingDisk(f"memory://{uuid.uuid4().hex}", commits=True)
    with open_engine(disk) as store:
        for turn in range(3):
            _fill(store.keyed_queues(TOPIC), turn)
            store.keyed_queues(TOPIC).delete(f"q{turn}", "q6")
            if turn:
                store.seal()
        expected = _contents(store)
        if step != "seal":
            store.checkpoint()
        changes, died = 0, True
        while died:
            disk.changes_left, died = changes, False
            try:
                STEPS[step](store)
            except Died:
                died = True
            disk.revive()
            store = open_engine(disk)
            assert _contents(store) == expected
            assert store.verify(deep=True).ok
            changes += 1
    with open_engine(disk) as store:
        store.maintain(grace=0)
        assert _contents(store) == expected
        assert store.keyed_queues(TOPIC).put("q0", b"x").result() == len(expected["q0"])
        assert store.keyed_queues(TOPIC).put("q6", b"x").result() == 0


@pytest.mark.parametrize("start", [80, 100], ids=["between runs", "inside of one"])
def test_who_dies_while_trimming_leaves_every_index_where_it_was(start: int):
    disk = DyingDisk(f"memory://{uuid.uuid4().hex}", commits=True)
    with open_engine(disk) as store:
        for turn in range(3):
            _fill(store.keyed_queues(TOPIC), turn)
            store.seal()
        store.checkpoint()
        whole = _indexed(store)
    store, changes, died = open_engine(disk), 0, True
    while died:
        disk.changes_left = changes
        with suppress(Died):
            store.trim(TOPIC, {0: start})
            store.checkpoint()
            collect(store.log, grace=0.0)
            died = False
        disk.revive()
        store = open_engine(disk)
        found = _indexed(store)
        trimmed = store.topics()[0].offsets[0][0] == start
        assert trimmed or found == whole
        assert found.items() <= whole.items()
        assert len(found) == (120 - start if trimmed else 120)
        assert store.verify(deep=True).ok
        changes += 1
    assert trimmed
    sizes = Counter(name for name, _ in whole)
    with open_engine(disk) as store:
        queues = store.keyed_queues(TOPIC)
        assert [queues.put(name, b"x").result() for name in sizes] == list(sizes.values())


def _indexed(store: Store) -> dict[tuple[str | bytes, int], bytes]:
    """Every message by queue and index."""
    queues, found = store.keyed_queues(TOPIC), {}
    for name in queues.names():
        first, end = queues.span(name)
        messages = queues.get(name, first, 9_999)
        found |= {(name, n): each for n, each in zip(range(first, end), messages, strict=True)}
    return found


def test_of_maintainers_that_trim_at_once_the_second_leaves_it():
    with open_engine() as store:
        for turn in range(2):
            _fill(store.keyed_queues(TOPIC), turn)
            store.seal()
        whole = _indexed(store)
        state = store.log.refresh()
        plans = [plan_trim(state.topic(TOPIC), {0: start}) for start in (40, 60)]
        lsn = state.lsn
        assert [trim(store.log, plan, lsn).rows for plan in plans] == [40, 0]
        found = _indexed(store)
        assert found.items() <= whole.items()
        assert len(found) == 40
        assert store.verify(deep=True).ok


def test_a_run_is_an_arrow_file_in_the_order_of_queues_and_offsets(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        _fill(store.keyed_queues(TOPIC), 0)
        with store.producer() as producer:
            producer.send(TOPIC, b"of no queue").result()
        store.seal()
    (file,) = tmp_path.glob("store/segments/*/0/*.arrow")
    table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
    assert table.schema.names == ["offset", "timestamp", "key", "value", "headers", "properties"]
    assert table.schema.metadata[b"kmq.order"] == b"queue"
    places = list(zip(table["key"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert places == sorted(places, key=lambda place: (place[0] or b"", place[1]))
    assert places[0] == (None, 40)


def test_consumers_and_copies_get_a_run_in_the_order_of_offsets(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        for turn in range(2):
            _fill(store.keyed_queues(TOPIC), turn)
            store.seal()
        expected = [b"%d.%d" % (turn, number) for turn in range(2) for number in range(40)]
        with store.consumer(topics=[TOPIC]) as consumer:
            consumer.seek(TOPIC, 0, 3)
            assert [record.value for record in consumer.consume(5)] == expected[3:8]
            assert [record.value for record in consumer.consume(999)] == expected[8:]
        with kmq.open(tmp_path / "copy") as target:
            copy_topics(store.log, target.log, [TOPIC])
            assert _contents(target) == _contents(store)
            assert target.verify(deep=True).ok


def test_compressed_runs_are_read(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues(TOPIC)
        store.alter_topic(TOPIC, compression="zstd")
        _fill(queues, 0)
        before = _contents(store)
        store.seal()
        assert _contents(store) == before


def test_a_get_of_ten_looks_into_five_runs_at_most_and_into_one_of_what_was_compacted():
    disk, queues = DyingDisk(f"memory://{uuid.uuid4().hex}"), [f"q{n}" for n in range(100)]
    with open_engine(disk, file_bytes=2**20) as store:
        for turn in range(40):
            store.keyed_queues(TOPIC).put_batch(queues, [b"x" * 100] * len(queues))
            store.seal()
            store.maintain(grace=0)
            if turn >= 9:
                assert 1 <= files_read(disk, "q2", turn - 9) <= 5
        assert max(files_read(disk, "q2", first) for first in range(31)) > 2
        store.compact(TOPIC)
        assert {files_read(disk, "q2", first) for first in range(31)} == {1}


def test_runs_that_grow_no_more_become_one_though_they_did_not_grow_much(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "TAKEN_IN_BYTES", 0)
    with open_engine(file_bytes=2**20) as store:
        queues = store.keyed_queues(TOPIC)
        for turn in range(10):
            _fill(queues, turn, names=10, messages=10)
            tidy(store.log, seal_after=0, manner=PLAIN)
            topic = store.log.refresh().topic(TOPIC)
            runs = list(topic.index(0).rows(0, topic.partition(0).end))
            monkeypatch.setattr(limits, "RUN_BYTES", round(3.5 * runs[-1].weight))
        assert [run.rows for run in runs] == [30, 30, 30, 10]


def test_merging_has_only_a_part_of_what_it_merges_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pieces: list[int] = []
    piece = RunMerge._piece

    def noted(self: RunMerge, spans: Sequence[tuple[int, int]]) -> Sorted:
        found = piece(self, spans)
        pieces.append(found.records.nbytes)
        return found

    monkeypatch.setattr(RunMerge, "_piece", noted)
    monkeypatch.setattr(limits, "MERGED_BYTES", 256 * 1024)
    monkeypatch.setattr(queue_directory, "_BLOCK_QUEUES", 64)
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues(TOPIC)
        names = [f"queue {number}" for number in range(5_000)]
        for turn in range(4):
            queues.put_batch(names, [b"%d" % turn * 500] * len(names))
            store.seal()
        merge_runs(store)
        assert sum(pieces) > 10_000_000
        assert max(pieces) < 500_000
        assert queues.get("queue 4321", 0, 9) == [b"%d" % turn * 500 for turn in range(4)]


def test_what_is_sorted_is_handed_on_a_few_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "SORTED_ROWS", 7)
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues(TOPIC)
        with store.producer() as producer:
            producer.send(TOPIC, b"of no queue").result()
            _fill(queues, 0)
            producer.send(TOPIC, b"nor this").result()
            _fill(queues, 1)
        before = _contents(store)
        store.seal()
        assert _contents(store) == before
        assert store.verify(deep=True).ok


@pytest.mark.parametrize("dead", [3, 4, 7])
def test_a_run_that_is_mostly_dead_is_written_anew_alone(dead: int):
    with open_engine() as store:
        queues = store.keyed_queues(TOPIC)
        for turn in range(2):  # of seven queues, with as many messages each
            _fill(queues, turn, messages=70)
            store.seal()
        queues.delete(*(f"q{number}" for number in range(dead)))
        _fill(queues, 2)
        store.seal()
        expected = _contents(store)
        gone = 20 * dead if 2 * dead > 7 else 0
        assert [thin_runs(store).dropped for _ in range(2)] == [gone, 0]
        assert _contents(store) == expected
        assert store.verify(deep=True).ok
        store.compact(TOPIC)
        assert _contents(store) == expected


def test_of_a_life_that_goes_on_in_a_later_run_nothing_goes():
    with open_engine() as store:
        queues = store.keyed_queues(TOPIC)
        queues.put_batch(["a", "a", "b"], [b"0", b"1", b"0"])
        store.seal()
        queues.put_batch(["a", "b", "b", "b"], [b"2", b"1", b"2", b"3"])
        store.seal()
        queues.delete("a")
        store.seal()
        assert thin_runs(store).dropped == 0


def test_maintenance_thins_large_runs_when_a_run_is_new(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "RUN_BYTES", 1)
    with open_engine() as store:
        queues = store.keyed_queues(TOPIC)
        _fill(queues, 0)
        store.seal()
        queues.delete(*queues.names())
        store.seal()
        assert store.maintain().compacted.dropped == 0  # no run is new
        queues.put("q0", b"x").result()
        monkeypatch.setattr(limits, "SEGMENT_BYTES", 1)
        assert store.maintain().compacted.dropped == 40
        assert _contents(store) == {"q0": [b"x"]}


@pytest.mark.parametrize(("rows", "runs"), [(40_000, 1), (20_000, 4)])
def test_large_batches_become_one_run_where_small_ones_are_put_together_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, runs: int
):
    monkeypatch.setattr(limits, "SEGMENT_BYTES", 1)
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues(TOPIC)
        names = pa.array([b"q%d" % number for number in range(rows)])
        batch = pa.table({"queue": names, "value": [b"x" * 40] * rows})
        for _ in range(4):
            queues.put_arrow(batch)
        assert store.seal().segments == runs
        assert queues.get("q19999", 0, 9) == [b"x" * 40] * 4


def test_of_the_batches_of_a_sorted_run_only_the_last_is_shorter(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        batch = pa.table({"queue": [b"q"] * 70_000, "value": [b"x" * 80] * 70_000})
        store.keyed_queues(TOPIC).put_arrow(batch)
        store.seal()
    (file,) = tmp_path.glob("store/segments/*/0/*.arrow")
    run = pa.ipc.open_file(pa.memory_map(str(file)))
    rows = [run.get_batch(number).num_rows for number in range(run.num_record_batches)]
    assert len(set(rows[:-1])) == 1
    assert sum(rows) == 70_000


def test_no_more_rows_are_sorted_at_once_than_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "SORTED_ROWS_MAX", 80_000)
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues(TOPIC)
        batch = pa.table({"queue": [b"q"] * 40_000, "value": [b"x"] * 40_000})
        for _ in range(4):
            queues.put_arrow(batch)
        assert store.seal().segments == 2


@pytest.mark.parametrize("firsts", [[5, 8, 11], [5, 9, 1 << 40]], ids=["dense", "with gaps"])
def test_records_are_sorted_with_the_offsets_that_they_had(firsts: list[int]):
    rows = {"key": [b"b", b"c", b"a"], "value": [b"1", b"2", b"3"], "timestamp": [7, 8, 9]}
    kinds = [("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.timestamp("us", "UTC"))]
    schema = pa.schema(kinds)
    batch = pa.record_batch(rows, schema)
    slices = [Slice(TOPIC, 0, first, batch, first + 3) for first in firsts]
    schema = pa.schema([pa.field("offset", pa.int64()), *schema])
    _, found = sorted_records(slices, schema, most=9)
    by_key = {b"a": 2, b"b": 0, b"c": 1}
    expected = [first + by_key[key] for key in sorted(by_key) for first in firsts]
    assert found.records["offset"].to_pylist() == expected


def test_a_run_of_no_queue_is_passed_over_by_whoever_asks_for_many(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues(TOPIC)
        with store.producer() as producer:
            producer.send(TOPIC, b"of no queue").result()
        store.seal()
        assert queues.put_batch(["b", "a"], [b"1", b"2"]) == [0, 0]
        found = queues.get_many(["a", "b", "c"], [0, 0, 0], 9)
        assert found["value"].to_pylist() == [b"2", b"1"]


def test_ten_thousand_queues_are_sealed_merged_and_read(tmp_path: Path):
    names = [f"user/{number}" for number in range(10_000)]
    batch = pa.table({"queue": names, "value": [f"to {name}" for name in names]})
    with kmq.open(tmp_path / "store") as store:
        for turn in range(6):
            store.keyed_queues(TOPIC).put_arrow(batch)
            if turn % 2:
                store.seal()
        store.compact(TOPIC)
        store.checkpoint()
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues(TOPIC)
        assert queues.names() == sorted(names)
        for number in range(0, 10_000, 97):
            assert queues.get(names[number], 2, 3) == [b"to user/%d" % number] * 3
        assert list(queues.put_arrow(batch)) == [6] * 10_000
        store.maintain(grace=0)
        assert queues.size("user/9999") == 7
