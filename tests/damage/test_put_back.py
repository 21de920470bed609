"""Logs that are lost with the seals in them, while the segments are still there.

Finds: records that are given up though a segment has them, and records that come back though they
were trimmed, compacted away, cut out, or are of another topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.format.frame import ALIGNMENT, MAGIC
from kmq_storage.format.layout_entries import CondemnEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.disk import behind
from tests.damage.bucket import read_around
from tests.damage.disk import opened, repaired_store
from tests.damage.told import tell_losses
from tests.support.damage import flip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kmq.Store]:
    with opened(tmp_path) as store:
        store.create_topic("t")
        store.checkpoint()
        yield store


def _send(store: kmq.Store, *numbers: int, keyed: bool = False) -> None:
    with store.producer() as producer:
        for number in numbers:
            producer.send("t", b"%d" % number, key=b"%d" % (number % 3) if keyed else None)


def _frames(folder: Path) -> list[int]:
    """Where the frames of the only log file begin."""
    (log,) = (folder / "log").glob("0*.log")
    contents = log.read_bytes().rstrip(b"\0")
    return [at for at in range(0, len(contents), ALIGNMENT) if contents.startswith(MAGIC, at)]


def _numbers(*offsets: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in offsets]


def test_records_of_a_segment_are_there_again_though_the_log_that_named_it_is_lost(
    store: kmq.Store, tmp_path: Path
):
    _send(store, *range(10))
    store.seal()
    with repaired_store(tmp_path) as repaired:
        assert repaired.describe_topic("t").rows == 10
        assert read_around(repaired, 0) == _numbers(*range(10))
        with pytest.raises(kmq.DataLossError) as lost:
            repaired.read("t", start={0: 10}).read_all()
        assert lost.value.context["start"] == 10
        assert repaired.offsets("t")[0][1] > 10 + 4 * 1024 * 1024 // 8 - 1
        _send(repaired, 10)
        repaired.maintain()
        assert read_around(repaired, 0)[:10] == _numbers(*range(10))
        assert repaired.verify(deep=True).ok


def test_of_segments_that_were_merged_the_merged_one_is_put_back_alone(
    store: kmq.Store, tmp_path: Path
):
    for first in range(0, 30, 10):
        _send(store, *range(first, first + 10))
        store.seal()
    store.compact("t")
    with repaired_store(tmp_path) as repaired:
        assert read_around(repaired, 0) == _numbers(*range(30))
        assert repaired.describe_topic("t").rows == 30


def test_what_was_compacted_away_does_not_come_back(tmp_path: Path):
    with opened(tmp_path) as store:
        store.create_topic("t", cleanup="compact")
        store.checkpoint()
        for first in range(0, 30, 10):
            _send(store, *range(first, first + 10), keyed=True)
            store.seal()
        store.compact("t")
        before = read_around(store, 0)
    with repaired_store(tmp_path) as repaired:
        assert read_around(repaired, 0) == before


def test_a_segment_that_begins_behind_a_trim_keeps_out_the_one_before(
    store: kmq.Store, tmp_path: Path
):
    _send(store, *range(10))
    store.seal()
    store.trim("t", {0: 4})
    _send(store, *range(10, 20))
    store.seal()
    store.compact("t")
    with repaired_store(tmp_path) as repaired:
        assert [offset for offset, _ in read_around(repaired, 0)] == [*range(4, 20)]


def test_segments_of_a_deleted_topic_stay_gone_though_one_of_its_name_is_there(tmp_path: Path):
    with opened(tmp_path) as store:
        store.create_topic("t")
        _send(store, *range(10))
        store.seal()
        store.delete_topic("t")
        store.create_topic("t")
        store.checkpoint()
        _send(store, 7)
    with repaired_store(tmp_path) as repaired:
        assert read_around(repaired, 0) == []


def test_a_segment_that_a_trim_cut_which_is_not_lost_is_put_back_from_there_on(
    store: kmq.Store, tmp_path: Path
):
    since = _frames(tmp_path)
    _send(store, *range(10))
    store.seal()
    lost = _frames(tmp_path)[len(since) :]
    store.trim("t", {0: 4})
    with repaired_store(tmp_path, lost) as repaired:
        assert repaired.offsets("t")[0][0] == 4
        assert read_around(repaired, 0) == _numbers(*range(4, 10))
        assert repaired.describe_topic("t").rows == 6


def test_a_segment_inside_of_a_hole_is_put_back_and_the_rest_of_the_hole_is_told(
    store: kmq.Store, tmp_path: Path
):
    since = _frames(tmp_path)
    _send(store, *range(5))
    _send(store, *range(5, 10))
    store.seal()
    _send(store, *range(10, 15))
    lost = _frames(tmp_path)[len(since) :]
    _send(store, *range(15, 20))
    with repaired_store(tmp_path, lost) as repaired:
        assert [offset for offset, _ in read_around(repaired, 0)] == [*range(10), *range(15, 20)]
        assert repaired.offsets("t")[0] == (0, 20)
        with pytest.raises(kmq.DataLossError) as told:
            repaired.read("t").read_all()
        assert (told.value.context["start"], told.value.context["end"]) == (10, 15)


def test_a_segment_that_goes_on_into_what_the_log_has_is_put_back_in_its_place(
    store: kmq.Store, tmp_path: Path
):
    since = _frames(tmp_path)
    _send(store, *range(5))
    lost = _frames(tmp_path)[len(since) :]
    _send(store, *range(5, 10))
    since = _frames(tmp_path)
    store.seal()
    lost += _frames(tmp_path)[len(since) :]
    with repaired_store(tmp_path, lost) as repaired:
        assert read_around(repaired, 0) == _numbers(*range(10))
        assert repaired.describe_topic("t").rows == 10
        assert repaired.offsets("t")[0][1] >= 10


def test_what_the_log_condemned_is_not_put_back(store: kmq.Store, tmp_path: Path):
    since = _frames(tmp_path)
    _send(store, *range(5))
    store.seal()
    lost = _frames(tmp_path)[len(since) :]
    store.log.commit([Unit((CondemnEntry(store.log.refresh().lsn + 1),))], durable=True)
    with repaired_store(tmp_path, lost) as repaired:
        assert read_around(repaired, 0) == []
        assert repaired.offsets("t")[0][1] >= 5


def test_of_a_damaged_segment_only_what_proves_itself_is_put_back(store: kmq.Store, tmp_path: Path):
    _send(store, *range(10))
    store.seal()
    _send(store, *range(10, 20))
    store.seal()
    first = min((tmp_path / "segments").rglob("*.arrow"))
    flip(first, first.read_bytes().index(b"0123456789"))
    with repaired_store(tmp_path) as repaired:
        found = read_around(repaired, 0)
        assert found == _numbers(*range(10, 20))


def _two_runs(folder: Path) -> list[Path]:
    """The runs of queues with two messages each, of which the log had one at the checkpoint."""
    with opened(folder) as store:
        queues = store.keyed_queues("queues")
        queues.put_batch(["a", "b"], [b"a0", b"b0"])
        store.checkpoint()  # of what stands in the log
        store.seal()  # together with that
        queues.put_batch(["b", "a"], [b"b1", b"a1"])
        store.seal()
    return sorted((folder / "segments").rglob("*.arrow"))


def test_messages_of_queues_are_there_again_where_none_before_them_is_lost(tmp_path: Path):
    _two_runs(tmp_path)
    with repaired_store(tmp_path) as repaired:
        queues = repaired.keyed_queues("queues")
        assert queues.get("a", 0, 2) == [b"a0", b"a1"]
        assert queues.get("b", 0, 2) == [b"b0", b"b1"]
        assert queues.put("a", b"a2").result() == 2
        tell_losses(queues, "a")  # nobody knows what stood behind the last run
        repaired.maintain()
        assert queues.get("a", 0, 9) == [b"a0", b"a1", b"a2"]
        assert repaired.verify(deep=True).ok


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_no_message_of_a_queue_comes_back_at_the_index_of_one_before_it(tmp_path: Path, how: str):
    first, _ = _two_runs(tmp_path)
    flip(first, first.read_bytes().index(b"a0"))
    if how == "gone":
        first.unlink()
    with repaired_store(tmp_path) as repaired:
        queues = repaired.keyed_queues("queues")
        tell_losses(queues, "a")
        assert queues.get("a", 0, 9) == []


def test_records_that_no_inline_commit_could_hold_are_put_back_and_their_offsets_taken(
    store: kmq.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _send(store, *range(10))
    store.seal()
    with monkeypatch.context() as patch:  # as if the files that they were staged in were collected
        patch.setattr(limits, "SMALL_COMMIT_BYTES_MAX", 8)
        repaired = repaired_store(tmp_path)
    with repaired:
        assert read_around(repaired, 0) == _numbers(*range(10))
        assert repaired.offsets("t")[0] == (0, 12)


def test_a_damaged_segment_gives_way_to_those_it_was_merged_from(store: kmq.Store, tmp_path: Path):
    for first in (0, 10):
        _send(store, *range(first, first + 10))
        store.seal()
    known = set((tmp_path / "segments").rglob("*.arrow"))
    store.compact("t")
    (merged,) = set((tmp_path / "segments").rglob("*.arrow")) - known
    flip(merged, merged.read_bytes().index(b"0123456789"))
    with repaired_store(tmp_path) as repaired:
        assert read_around(repaired, 0) == _numbers(*range(20))


def test_a_repair_that_dies_at_its_checkpoint_leaves_the_segments_to_the_next_one(
    store: kmq.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _send(store, *range(10))
    store.seal()
    (log,) = (tmp_path / "log").glob("0*.log")
    log.write_bytes(bytes(log.stat().st_size))
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError), opened(tmp_path) as one:
        patch.setattr(behind, "write_checkpoint", lambda *_, **__: 1 // 0)
        one.repair(drop_damaged=True)
    with opened(tmp_path) as other:
        assert other.repair(drop_damaged=True).damage == []
        assert read_around(other, 0) == _numbers(*range(10))


def test_typed_records_are_put_back_and_may_be_tombstones(tmp_path: Path):
    schema = pa.schema([pa.field("price", pa.int32(), nullable=False)])
    with opened(tmp_path) as store:
        store.create_topic("t", schema=schema)
        store.checkpoint()
        with store.producer() as producer:
            producer.send_arrow("t", pa.table({"price": pa.array([1, 2], pa.int32())})).result(10)
            producer.send("t", None, key=b"gone").result(10)
        store.seal()
    with repaired_store(tmp_path) as repaired:
        table = repaired.read("t", start={0: 0}, end={0: 3}).read_all()
        assert table["price"].to_pylist() == [1, 2, None]


def test_a_queue_hands_out_what_was_put_back_once_more_and_nothing_twice(
    store: kmq.Store, tmp_path: Path
):
    store.create_queue("q")
    store.bind_queue("q", ["t"])
    store.checkpoint()
    _send(store, *range(10))
    store.seal()
    queue = store.queue("q")
    queue.ack(queue.receive(4))
    with repaired_store(tmp_path) as repaired:
        queue = repaired.queue("q")
        assert _received(queue) == [*range(10)]


def _received(queue: kmq.Queue) -> list[int]:
    """The offsets that a queue hands out; it tells of the losses of its own log, and the topic."""
    offsets, told = list[int](), 0
    while True:
        try:
            found = queue.receive(4)
        except kmq.DataLossError:
            told += 1
            continue
        if not found:
            assert told == 2
            return offsets
        offsets += [each.offset for each in found]
        queue.ack(found)
