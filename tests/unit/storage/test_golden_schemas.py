"""The golden store of segments that tell their topic's schema stays readable, with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa

import kmq_spark as kmq
from kmq_storage.format.segment import schemas_of
from kmq_storage.format.typed import encode_schema
from tests.data.make_golden_schemas import ROWS, SCHEMAS, make
from tests.data.make_golden_typed import value
from tests.support.golden import DATA

GOLDEN = DATA / "format-1-schemas"


def _told(folder: Path) -> list[tuple[str, ...]]:
    files = sorted((folder / "segments").rglob("*.arrow"))
    return [schemas_of(pa.ipc.open_file(pa.memory_map(str(file)))) for file in files]


def _check_records(store: kmq.Store) -> None:
    assert store.describe_topic("typed").schema == SCHEMAS[-1]
    table = store.read("typed", end={0: 2 * ROWS}).read_all()
    assert table["_offset"].to_pylist() == list(range(2 * ROWS))
    assert table["id"].to_pylist() == list(range(2 * ROWS))
    assert table["kind"].to_pylist() == [value(n)["kind"] for n in range(2 * ROWS)]
    notes = [value(n)["note"] if n >= ROWS else None for n in range(2 * ROWS)]
    assert table["note"].to_pylist() == notes


def test_the_golden_records_come_back_under_the_newest_schema(tmp_path: Path):
    shutil.copytree(GOLDEN, tmp_path / "store")
    with kmq.open(tmp_path / "store", create=False, read_only=True) as store:
        _check_records(store)
        assert store.verify(deep=True).ok


def test_the_golden_segments_alone_make_a_store(tmp_path: Path):
    shutil.copytree(GOLDEN, tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "log")
    with kmq.open(tmp_path / "store", create=False, maintenance=False) as store:
        store.repair(drop_damaged=True)
        _check_records(store)


def test_the_maker_makes_such_segments(tmp_path: Path):
    make(tmp_path / "store")
    schemas = tuple(map(encode_schema, SCHEMAS))
    assert _told(tmp_path / "store") == _told(GOLDEN) == [schemas[:1], schemas]
