"""The golden store of the engine stays readable: segments, pages, checkpoints, trims, gaps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.errors import DataLossError, OffsetOutOfRangeError
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.format.layout_entries import GapEntry, SegmentEntry, TrimEntry
from kmq_storage.log.checkpoints.checkpoint import checkpoints, read_checkpoint
from kmq_storage.log.checkpoints.snapshot import snapshot
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden_engine import CUT, EVERYTHING, KEY, STATE, STREAM, keyed, make
from tests.data.making import rows
from tests.support.golden import DATA, copied, golden_frames

GOLDEN = DATA / "format-1-engine"
folder = copied(GOLDEN)


@pytest.fixture(params=["read-only", "writable", "without the newest checkpoint"])
def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[kmq.Store]:
    if request.param.startswith("without"):
        max((folder / "checkpoints").iterdir()).unlink()
    with kmq.open(folder, create=False, read_only=request.param == "read-only") as opened:
        yield opened


def test_the_golden_store_says_what_was_written(store: kmq.Store):
    state = store.log.refresh()
    assert state.lsn == 41
    assert {name: topic.offsets() for name, topic in state.topics.items()} == {
        "stream": {0: (5, 94), 1: (2, 8)},
        "state": {0: (0, 65)},
        "cut": {0: (0, 30)},
    }
    assert {topic.id for topic in state.topics.values()} == {STREAM, STATE, CUT}
    assert state.topic("stream").settings.compression == "lz4"
    assert {name: topic.held for name, topic in state.topics.items()} == {
        "stream": 95,
        "state": 10,
        "cut": 20,
    }
    assert state.group_offsets("group") == {STREAM: {0: 20, 1: 4}}
    assert (state.producers["producer"].sequence, state.producers["producer"].lsn) == (1, 41)


def test_the_golden_records_come_back(store: kmq.Store):
    written = [rows(0, 12, EVERYTHING), rows(12, 80, KEY), rows(92, 2, EVERYTHING)]
    expected = pa.concat_tables(
        [pa.table(each.batch) for each in written], promote_options="default"
    )
    found = store.read("stream", partitions=[0]).read_all()
    assert found["offset"].to_pylist() == list(range(5, 94))
    for name in ("timestamp", "key", "value", "headers", "properties"):
        assert found[name].to_pylist() == expected[name].slice(5).to_pylist()
    second = store.read("stream", partitions=[1]).read_all()
    values = [value for each in (rows(100, 5, 0), rows(200, 3, 0)) for value in _values(each.batch)]
    assert second["value"].to_pylist() == values[2:]


def _values(batch: pa.RecordBatch) -> list[bytes | None]:
    return list(batch.column("value").to_pylist())


def test_the_newest_of_each_key_is_left(store: kmq.Store):
    found = store.read("state").read_all()
    sent = keyed(0, 65, 10).batch
    assert found["offset"].to_pylist() == list(range(55, 65))
    assert found["key"].to_pylist() == sent.column("key").to_pylist()[55:]
    assert found["value"].to_pylist() == sent.column("value").to_pylist()[55:]


def test_what_was_cut_out_is_told(store: kmq.Store):
    with pytest.raises(DataLossError, match=r"offsets 10 to 19 were lost \(lost in a fire\)"):
        store.read("cut").read_all()
    assert store.read("cut", end={0: 10}).read_all().num_rows == 10
    assert store.read("cut", start={0: 20}).read_all().num_rows == 10


def test_its_log_begins_later_than_its_first_commit(store: kmq.Store):
    assert [commit.lsn for commit in store.commits()] == list(range(25, 42))
    with pytest.raises(OffsetOutOfRangeError, match="the log begins at commit 25"):
        list(store.commits(24))


def test_its_entries_encode_to_the_same_bytes():
    kinds = {type(entry) for frame in golden_frames(GOLDEN) for entry in frame.entries}
    assert {SegmentEntry, TrimEntry, GapEntry} <= kinds


def test_its_checkpoints_hold_what_the_commits_before_add_up_to(folder: Path):
    disk = LocalDisk(folder)
    newer, older = [read_checkpoint(disk, *each) for each in checkpoints(disk)]
    newest_file = max((folder / "checkpoints").iterdir())
    newest_file.unlink()
    log = LocalLog(disk, open_identity(disk, SYSTEM, create=False), SYSTEM)
    replica = log._log.new_replica(indexed=True)
    assert replica.cursor == older.cursor
    replica.advance(newer.cursor.lsn, newer.cursor.lsn)
    assert replica.cursor == newer.cursor
    replayed = snapshot(replica.state)
    # What checkpoints that are so old say otherwise, or not at all.
    members = {"condemned": 0, "gone": []} | newer.members | {"batches": []}
    assert replayed == {name: members[name] for name in replayed}


def test_it_can_be_maintained_and_says_the_same(folder: Path):
    with kmq.open(folder) as store:
        before = store.read("stream").read_all()
        store.seal()
        store.compact("stream")
        store.checkpoint()
        store.collect(grace=0)
        assert store.read("stream").read_all() == before
        assert list((folder / paths.STAGED_FOLDER).iterdir()) == []
        assert list((folder / paths.PIN_FOLDER).iterdir()) == []


def test_reading_it_changes_no_file(folder: Path):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with kmq.open(folder, create=False, read_only=True) as store:
        assert store.read("stream").read_all().num_rows == 95
        assert store.verify(deep=True).ok
        assert store.stats().rows == 125
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_script_makes_a_store_that_says_the_same(tmp_path: Path, folder: Path):
    make(tmp_path / "made")
    with kmq.open(tmp_path / "made") as made, kmq.open(folder) as golden:
        for topic in ("stream", "state"):
            assert made.read(topic).read_all() == golden.read(topic).read_all()
