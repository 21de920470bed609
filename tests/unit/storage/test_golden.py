"""The golden store of each format version stays readable, and its bytes are what we would write."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kmq_storage.environment import SYSTEM
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.frame import HEADER_BYTES, encode_frame, layout
from kmq_storage.format.identity import decode_identity, encode_identity
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import AUDIT, ORDERS, make
from tests.data.making import BEGIN_US, rows
from tests.support.golden import DATA, copied, golden_frames
from tests.support.storage import send

GOLDEN = DATA / "format-1"
folder = copied(GOLDEN)


def _open(folder: Path, *, read_only: bool) -> CommitLog:
    disk = LocalDisk(folder, read_only=read_only)
    return LocalLog(disk, open_identity(disk, SYSTEM, create=False), SYSTEM)


@pytest.mark.parametrize("read_only", [False, True])
def test_the_golden_store_says_what_was_written(folder: Path, read_only: bool):
    log = _open(folder, read_only=read_only)
    state = log.refresh()
    assert state.lsn == 11
    assert sorted(state.topics) == ["audit", "orders"]
    assert state.topic("orders").offsets() == {0: (0, 44), 1: (0, 2)}
    assert state.topic("orders").settings.capacity == 1000
    assert state.group_offsets("group") == {ORDERS: {0: 43, 1: 1}}
    assert (state.groups["group"].member, state.groups["group"].generation) == ("member", 1)
    assert state.groups["group"].assignment == {"orders": [0, 1]}
    assert state.batch_version("query") == 7
    assert (state.producers["producer"].sequence, state.producers["producer"].lsn) == (1, 11)


@pytest.mark.parametrize("read_only", [False, True])
def test_the_golden_records_come_back(folder: Path, read_only: bool):
    log = _open(folder, read_only=read_only)
    state, reader = log.refresh(), ChunkReader(log.files)
    expected = {
        ("orders", 0): [(0, 3, 0), (30, 40, 1), (70, 1, 0)],
        ("orders", 1): [(10, 2, 3)],
        ("audit", 0): [(20, 2, 7)],
    }
    for (name, partition), batches in expected.items():
        topic = state.topic(name)
        chunks = topic.places(partition, 0, topic.partition(partition).end)
        found = [reader.read(chunk, chunk.base_offset, chunk.end_offset) for chunk in chunks]
        assert found == [rows(*batch).batch for batch in batches]
        assert [chunk.min_timestamp for chunk in chunks] == [BEGIN_US + n for n, _, _ in batches]


def test_the_golden_store_can_be_written_to(folder: Path):
    log = _open(folder, read_only=False)
    topic = log.refresh().topic("audit")
    assert topic.id == AUDIT
    with pytest.raises(LookupError):
        send(log, b"x")
    assert log.written_state().lsn == 11


def test_its_frames_encode_to_the_same_bytes():
    seed = decode_identity((GOLDEN / "kmq.json").read_bytes(), "golden").seed
    frames = list(golden_frames(GOLDEN))
    for frame in frames:
        header = frame.header
        assert header.entries == len(frame.entries)
        bodies = [
            frame.contents.slice(entry.position, entry.length)
            for entry in frame.entries
            if isinstance(entry, RecordsEntry) and not entry.staged
        ]
        placed = layout(len(frame.directory), bodies)
        assert placed.body_position == header.body_position >= HEADER_BYTES
        encoded = encode_frame(header, frame.directory, placed, bodies, seed)
        assert b"".join(bytes(memoryview(part)) for part in encoded) == frame.contents.to_pybytes()
    assert len(frames) == 11


def test_its_identity_encodes_to_the_same_bytes():
    raw = (GOLDEN / "kmq.json").read_bytes()
    assert encode_identity(decode_identity(raw, "golden")) == raw


def test_its_staged_file_is_a_plain_arrow_file():
    (file,) = (GOLDEN / "staged").iterdir()
    with pa.ipc.open_file(file) as opened:
        table = opened.read_all()
        assert opened.schema.metadata[b"kmq.format"] == b"1"
    assert table.num_rows == 40
    assert table.column_names == ["timestamp", "key", "value"]


def test_the_script_makes_a_store_that_says_the_same(tmp_path: Path, folder: Path):
    make(tmp_path / "made")
    made = _open(tmp_path / "made", read_only=True)
    golden = list(_open(folder, read_only=True).commits(1))
    assert [commit.time for commit in made.commits(1)] == [commit.time for commit in golden]
    assert made.refresh().lsn == len(golden)
