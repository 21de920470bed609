"""Reading some columns of records that are not sealed yet: what proves them stands behind each."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.errors import CorruptionError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.packing import PART, PROVEN_BYTES_MIN, parts_behind, parts_of, with_parts
from kmq_storage.model import Chunk
from tests.support.damage import flip
from tests.support.wide_tables import check_damage_is_told, check_others_are_read, wide_table

ROWS, COLUMNS = 1_000, 5
#: Bytes of a value / 16: one batch of them goes into a commit, or into a staged file.
WIDTHS = {"in a commit": 2, "staged": 40}


@pytest.fixture(params=WIDTHS)
def table(request: pytest.FixtureRequest) -> pa.Table:
    """Columns c0, c1, ... of values that differ."""
    return wide_table(COLUMNS, WIDTHS[request.param], ROWS)


@pytest.fixture
def folder(table: pa.Table, tmp_path: Path) -> Path:
    """A store with the table in one batch that is not sealed."""
    with kmq.open(tmp_path / "store", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t", schema=table.schema)
        producer.send_arrow("t", table).result(10)
    return tmp_path / "store"


def _chunk(store: kmq.Store) -> Chunk:
    (place,) = store.log.refresh().topic("t").places(0, 0, ROWS)
    assert isinstance(place, Chunk)
    return place


def _known(folder: Path) -> tuple[Path, Chunk]:
    """The file of the batch, and the batch with what proves its columns."""
    with kmq.open(folder, read_only=True) as store:
        chunk = _chunk(store)
    at = chunk.location
    message = pa.py_buffer((folder / at.file).read_bytes()[at.position : at.position + at.length])
    return folder / at.file, with_parts(chunk, message)


def _damage(folder: Path, column: int) -> None:
    """Change a byte in the middle of a column; the timestamp stands before the first."""
    file, chunk = _known(folder)
    *_, part = parts_of(chunk, (column + 1,))
    flip(file, chunk.location.position + (part.start + part.end) // 2)


def test_damage_in_a_column_that_is_not_read_hurts_nobody(folder: Path, table: pa.Table):
    _damage(folder, 3)
    check_others_are_read(folder, table)


@pytest.mark.parametrize("columns", [["c3"], ["c1", "c3"], None])
def test_damage_in_a_column_that_is_read_is_an_error(folder: Path, columns: list[str] | None):
    _damage(folder, 3)
    check_damage_is_told(folder, columns, ROWS)


def test_verify_looks_at_every_column_and_at_what_proves_it(folder: Path):
    file, chunk = _known(folder)
    at = chunk.location
    for position in (at.position + at.length // 2, at.position + at.length - 1):
        flip(file, position)
        with kmq.open(folder, read_only=True) as store:
            (damage,) = store.verify(deep=True).damage
        assert (damage.topic, damage.start, damage.end) == ("t", 0, ROWS)
        flip(file, position)


def test_no_change_of_what_stands_around_the_columns_gives_wrong_values(
    folder: Path, table: pa.Table
):
    file, chunk = _known(folder)
    at, (head_end, _) = chunk.location, PART.unpack_from(chunk.parts)
    begin = range(at.position, at.position + head_end, 41)
    behind = range(at.position + at.length - len(chunk.parts), at.position + at.length, 5)
    for position in (*begin, *behind):
        flip(file, position)
        with kmq.open(folder, read_only=True) as store, pytest.raises(CorruptionError):
            store.read("t", columns=["c2"]).read_all()
        flip(file, position)
    with kmq.open(folder, read_only=True) as store:
        assert store.read("t", columns=["c2"]).read_all()["c2"].equals(table["c2"])


def test_a_position_alone_is_a_column_too(folder: Path):
    with kmq.open(folder, read_only=True) as store:
        found = store.read("t", columns=["_partition"]).read_all()["_partition"]
    assert found.to_pylist() == [0] * ROWS


def test_values_that_look_like_what_proves_columns_are_values(tmp_path: Path):
    forged = bytearray(PART.pack(0, 0) * 3)
    schema = pa.schema([("v", pa.binary())])
    values = [b"x" * 200 + forged] * (PROVEN_BYTES_MIN // 200)
    with kmq.open(tmp_path, maintenance=False) as store, store.producer() as producer:
        store.create_topic("t", schema=schema)
        producer.send_arrow("t", pa.table({"v": values}, schema)).result(10)
        assert store.read("t", columns=["v"]).read_all()["v"].to_pylist() == values


def test_a_message_with_nothing_behind_it_has_no_parts():
    batch = pa.record_batch({"v": [b"%9d" % n for n in range(ROWS)]})
    message = batch.serialize()
    assert parts_behind(message, checksum(message)) == b""
    for position in range(0, message.size, 11):
        changed = bytearray(message.to_pybytes())
        changed[position : position + 8] = struct.pack("<q", -1)
        assert parts_behind(pa.py_buffer(bytes(changed)), checksum(message)) == b""
