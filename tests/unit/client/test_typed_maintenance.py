"""Typed topics under maintenance: sealed, compacted, trimmed, reopened, and still the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import limits
from tests.unit.client.stored import records, values

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("name", pa.string_view()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("key", pa.list_(pa.int8())),
    ]
)


def _fill(store: kmq.Store, first: int, count: int) -> None:
    with store.producer() as producer:
        for n in range(first, first + count):
            value = {"id": n, "name": f"n{n}", "kind": f"k{n % 3}", "key": [n % 5]}
            producer.send("t", value, f"key {n % 4}", headers={"n": str(n)}, properties={"n": n})
        producer.send("t", None, "key 0")


def _everything(store: kmq.Store) -> tuple[list[kmq.Record], pa.Table]:
    return records(store, "t"), store.read("t").read_all().combine_chunks()


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_sealing_changes_nothing_that_a_reader_gets(store: kmq.Store, compression: str | None):
    store.create_topic("t", schema=SCHEMA, partitions=2, compression=compression)
    _fill(store, 0, 20)
    before = _everything(store)
    store.seal()
    assert _everything(store) == before
    some = store.read("t", columns=["name", "_offset"]).read_all()
    assert some.equals(before[1].select(["name", "_offset"]))
    _fill(store, 20, 20)
    later = _everything(store)
    assert len(later[0]) == 42
    store.seal()
    store.compact("t")
    assert _everything(store) == later


def test_a_sealed_segment_has_own_columns_first(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t", schema=SCHEMA)
        _fill(store, 0, 3)
        store.seal()
    (file,) = (tmp_path / "store").glob("segments/**/*.arrow")
    with pa.ipc.open_file(file) as opened:
        table = opened.read_all()
    added = ["_offset", "_timestamp", "_key", "_headers", "_properties", "_tombstone"]
    assert table.column_names == [*SCHEMA.names, *added]
    assert table.column("_offset").to_pylist() == [0, 1, 2, 3]
    assert table.column("id").to_pylist() == [0, 1, 2, None]
    assert table.column("_tombstone").to_pylist() == [False, False, False, True]


def test_old_segments_read_under_the_newest_schema(store: kmq.Store):
    store.create_topic("t", schema=SCHEMA)
    _fill(store, 0, 3)
    store.seal()
    wider = [pa.field("new", pa.int8()), pa.field("id", pa.int64(), nullable=False)]
    store.alter_topic("t", schema=pa.schema([*wider, *SCHEMA][:2] + list(SCHEMA)[1:]))
    _fill(store, 3, 3)
    before = _everything(store)
    assert before[0][0].value["new"] is None
    assert before[1].schema.field("id").type == pa.int64()
    store.seal()
    store.compact("t")  # segments of two versions in one
    assert _everything(store) == before


def test_a_reader_that_began_before_a_change_goes_on_over_segments_made_after(store: kmq.Store):
    store.create_topic("t", schema=SCHEMA)
    for first in range(0, 30, 10):
        _fill(store, first, 10)
    reader = store.read("t", batch_rows=5)
    first = reader.read_next_batch()
    store.alter_topic("t", schema=SCHEMA.append(pa.field("new", pa.int8())))
    store.seal()
    store.collect(grace=0)
    table = pa.Table.from_batches([first, *reader])
    assert "new" not in table.column_names
    assert table.column("_offset").to_pylist() == list(range(33))


def test_key_compaction_keeps_the_newest_of_each_key_and_their_offsets(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t", schema=SCHEMA, cleanup="compact")
    _fill(store, 0, 20)
    kept = {record.key: record for record in records(store, "t")}
    store.compact("t")
    newest = sorted(kept.values(), key=lambda record: record.offset)
    assert records(store, "t") == newest
    table = store.read("t").read_all()
    assert table.column("_offset").to_pylist() == [record.offset for record in newest]
    monkeypatch.setattr(limits, "TOMBSTONE_DELAY", -1.0)
    _fill(store, 20, 1)  # something to do
    store.compact("t")
    assert None not in values(store, "t")
    assert {record.key for record in records(store, "t")} == {b"key 1", b"key 2", b"key 3"}


def test_a_store_that_is_opened_from_a_checkpoint_knows_it_all(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t", schema=SCHEMA)
        _fill(store, 0, 5)
        store.alter_topic("t", schema=SCHEMA.append(pa.field("new", pa.int8())))
        before = _everything(store)
        assert before[1].schema.field("id").nullable  # there is a tombstone
        store.seal()
        store.checkpoint()
    with kmq.open(tmp_path / "store") as store:
        assert _everything(store) == before


def test_what_a_trim_leaves_is_as_it_was(store: kmq.Store):
    store.create_topic("t", schema=SCHEMA)
    _fill(store, 0, 9)
    store.seal()
    _fill(store, 9, 9)
    before = records(store, "t")
    store.trim("t", {0: 5})
    assert records(store, "t") == before[5:]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_very_many_small_columns_are_sealed_compressed(store: kmq.Store, compression: str):
    names = [f"c{n}" for n in range(500)]
    schema = pa.schema([(name, pa.string()) for name in names])
    store.create_topic("t", schema=schema, compression=compression)
    with store.producer() as producer:
        for row in range(3):
            producer.send_arrow("t", pa.table({name: [f"{name} {row}"] for name in names}))
    before = _everything(store)
    store.seal()
    assert _everything(store) == before
