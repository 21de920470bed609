"""Tables of many columns, and what reading some of them must do when others are damaged."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.errors import CorruptionError


def wide_table(columns: int, width: int, rows: int) -> pa.Table:
    """Columns c0, c1, ... that no codec makes small: hashes of the row and the column."""
    cells = {
        f"c{n}": [uuid.uuid5(uuid.NAMESPACE_OID, f"{n} {row}").bytes * width for row in range(rows)]
        for n in range(columns)
    }
    return pa.table(cells)


def check_others_are_read(folder: Path, table: pa.Table) -> None:
    """Topic `t` has this table, of which c3 is damaged: who does not read it is not hurt."""
    with kmq.open(folder, read_only=True) as store:
        found = store.read("t", columns=["c4", "c1", "_offset"]).read_all()
    assert found.select(["c4", "c1"]).equals(table.select(["c4", "c1"]))
    assert found["_offset"].to_pylist() == list(range(table.num_rows))


def check_damage_is_told(folder: Path, columns: list[str] | None, rows: int) -> None:
    """The only batch of topic `t` is damaged in one of these columns."""
    with kmq.open(folder, read_only=True) as store, pytest.raises(CorruptionError) as caught:
        store.read("t", columns=columns).read_all()
    assert (caught.value.context["start"], caught.value.context["end"]) == (0, rows)
